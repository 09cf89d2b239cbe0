import json

import pytest

from jaxnlp.text.bpe_merges import merges_of
from jaxnlp.text.tokenizer_files import read_decoder_tokenizer
from tests.decoder_folders import save_tokenizer


def test_merges_are_texts_or_pairs():
    assert merges_of({"merges": ["a b", ["c", "##d"]]}) == [("a", "b"), ("c", "##d")]
    assert merges_of({"merges": [["a", "##b"]], "continuing_subword_prefix": "##"}) == [("a", "##b")]


def test_a_second_part_without_the_prefix_is_refused_by_name():
    with pytest.raises(ValueError, match="the second part of the merge 'a', 'b' does not begin with 'x'"):
        merges_of({"merges": [["a", "xb"], ["a", "b"]], "continuing_subword_prefix": "x"})


def test_a_file_with_such_a_merge_does_not_reach_the_library_which_would_end_the_process(tmp_path):
    save_tokenizer(tmp_path, "llama")
    whole = json.loads((tmp_path / "tokenizer.json").read_text())
    whole["model"]["continuing_subword_prefix"] = "x"
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    with pytest.raises(ValueError, match=r"tokenizer.json is not a BPE tokenizer: the second part of the merge"):
        read_decoder_tokenizer(tmp_path)
