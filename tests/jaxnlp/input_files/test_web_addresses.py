from pathlib import Path

import pytest

from jaxnlp.convert.folders import find_folder
from jaxnlp.images.reading import open_image
from jaxnlp.input_files.text_files import read_text_file
from jaxnlp.input_files.web_addresses import absence


@pytest.mark.parametrize("path", ["https://x.org/a.png", Path("https://x.org/a.png"), "s3://bucket/a", "hf://data/a"])
def test_a_web_address_is_to_be_downloaded(path):
    assert absence(path, "image") == "is a web address; download the image, and give its path"


@pytest.mark.parametrize("path", ["a.png", "c:/a.png", "folder/a:b/c", "/https:/a"])
def test_other_paths_do_not_exist(path):
    assert absence(path) == "does not exist"


def test_readers_and_names_of_weights_say_so():
    with pytest.raises(FileNotFoundError, match=r"the image https:/x.org/a.png is a web address; download the image"):
        open_image(Path("https://x.org/a.png"), 3)
    with pytest.raises(
        FileNotFoundError, match=r"the text file https:/x.org/a.csv is a web address; download the file"
    ):
        read_text_file(Path("https://x.org/a.csv"))
    with pytest.raises(ValueError, match=r"is a web address; give the name on the Hugging Face Hub, such as a/b$"):
        find_folder("https://huggingface.co/a/b/tree/main")
