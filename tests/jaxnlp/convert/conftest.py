import pytest
import torch
import transformers

from tests.jaxnlp.convert.pretrained_helpers import PIECES, SETTINGS


@pytest.fixture(scope="session")
def theirs():
    """A tiny BERT of Transformers."""
    torch.manual_seed(0)
    return transformers.BertForPreTraining(transformers.BertConfig(**SETTINGS)).eval()


@pytest.fixture
def folder(theirs, tmp_path):
    """What Transformers and its tokenizer write."""
    path = tmp_path / "bert"
    theirs.bert.save_pretrained(path)
    (path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES))
    (path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    return path
