"""Folders of tiny CLIPs, and image files."""

import pytest

import jaxnlp
from tests.clip_folders import write_folder
from tests.image_folders import write_images

ONE_LAYER = {"num_hidden_layers": 1}
"""Programs of one layer are compiled sooner; the tests of weights have models of two."""


@pytest.fixture(scope="package")
def tiny(tmp_path_factory):
    """A CLIPModel: its folder, its model in Transformers, and what we load of it."""
    folder = tmp_path_factory.mktemp("tiny") / "clip"
    return folder, write_folder(folder, text=ONE_LAYER, image=ONE_LAYER), jaxnlp.load_pretrained(folder)


@pytest.fixture(scope="package")
def texts_only(tmp_path_factory):
    """The same of a CLIPTextModelWithProjection."""
    folder = tmp_path_factory.mktemp("tiny") / "texts"
    return folder, write_folder(folder, "CLIPTextModelWithProjection", text=ONE_LAYER), jaxnlp.load_pretrained(folder)


@pytest.fixture(scope="package")
def files(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("images") / "all")[:5]
