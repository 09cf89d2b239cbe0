"""Exported taggers and parsers, read by Transformers and by the library."""

import dataclasses
import json

import chex
import jax
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file

import jaxnlp
from jaxnlp.__main__ import main
from jaxnlp.convert import PretrainedError
from jaxnlp.convert.pretrained_encoder import read_pretrained
from jaxnlp.models.bert import BertConfig
from jaxnlp.models.bert_classifier import BertClassifierConfig
from jaxnlp.models.recurrent_parser import RecurrentParserConfig
from jaxnlp.models.tagger import TaggerConfig
from jaxnlp.models.word_encoder import WordEncoderCompute
from jaxnlp.tasks import Trained
from jaxnlp.tasks.bert_verbs.word_export import ExportWords
from jaxnlp.tasks.classification import Classification
from jaxnlp.tasks.parsing import Parsing
from jaxnlp.tasks.tagging import Tagging
from jaxnlp.text.parser_processor import ParserProcessor
from jaxnlp.text.tagger_processor import TaggerProcessor
from jaxnlp.text.word_inputs import WordInputs
from tests.jaxnlp.models.test_word_encoder import PIECES
from tests.random_parameters import random_parameters

BERT = BertConfig(num_layers=2, num_heads=2, width=8, max_positions=12)
FIELDS = {"bert": True, "encoder": BERT, "word_width": 0, "character_features": 0, "recurrent_widths": ()}
WORDS = ("the", "dogs", "see", "rome")
INPUTS = WordInputs.of_sentences([WORDS], pieces=PIECES, max_pieces=12, max_characters=6)
LABELS = ("O", "B-X", "I-X")


def tagger(task=None, **fields):
    processor, config = TaggerProcessor(INPUTS, LABELS, "bio"), TaggerConfig(**{"crf": False, **FIELDS, **fields})
    model, shapes = config.build(processor), config.inputs(processor)
    return Trained(task or Tagging(), model, random_parameters(model, *shapes), processor, name="mine")


@pytest.mark.parametrize("use_pooler", [True, False])
def test_a_tagger_that_is_only_a_bert_has_the_same_scores_in_transformers(tmp_path, capsys, use_pooler):
    trained = tagger(encoder=dataclasses.replace(BERT, use_pooler=use_pooler), input_dropout_rate=0.25)
    ExportWords(tmp_path / "bert")(trained)
    shown = capsys.readouterr().out
    assert "transformers.BertForTokenClassification.from_pretrained reads it, and jaxnlp the whole model\n" in shown
    assert "Transformers takes the best label of each word; jaxnlp predict also respects the bio scheme\n" in shown
    assert not (tmp_path / "bert" / "heads.safetensors").exists()
    model, report = transformers.AutoModelForTokenClassification.from_pretrained(
        tmp_path / "bert", output_loading_info=True
    )
    assert not any(report.values())
    assert model.config.id2label == dict(enumerate(LABELS))
    assert (model.dropout.p, model.training) == (0.25, False)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "bert")
    inputs = tokenizer([list(WORDS)], is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        logits = model(**inputs).logits[0].numpy()
    batch = INPUTS.batch([INPUTS.encode(WORDS)], 1, INPUTS.length(WORDS))
    first = [inputs.word_ids(0).index(number) for number in range(len(WORDS))]
    np.testing.assert_array_equal(first, batch["first_pieces"][0][: len(WORDS)])
    ours = jax.jit(trained.model.apply)(
        {"params": trained.params}, *(batch[name] for name in trained.model.config.reads)
    )
    np.testing.assert_allclose(ours.scores[0, : len(WORDS)], logits[first], atol=1e-5)
    assert np.ptp(logits[first], axis=0).max() > 1e-2


def test_an_exported_tagger_computes_in_float32(tmp_path):
    ExportWords(tmp_path / "bert")(tagger(compute=WordEncoderCompute(dtype="bfloat16", attention="xla")))
    compute = jaxnlp.load_pretrained(tmp_path / "bert").model.config.compute
    assert compute == WordEncoderCompute(dtype="float32", matmul_dtype=None, attention="xla")


def test_a_tagger_whose_labels_were_renamed_after_its_export_is_refused(tmp_path):
    ExportWords(tmp_path / "bert")(tagger())
    config = json.loads((tmp_path / "bert" / "config.json").read_text())
    config["id2label"] = {index: f"{label}S" for index, label in config["id2label"].items()}
    (tmp_path / "bert" / "config.json").write_text(json.dumps(config))
    with pytest.raises(PretrainedError, match=r"classes in config\.json are OS, .*; remove jaxnlp\.json"):
        jaxnlp.load_pretrained(tmp_path / "bert")


def test_a_tagger_that_does_not_respect_the_scheme_has_no_note_on_it(tmp_path, capsys):
    ExportWords(tmp_path / "bert")(tagger(Tagging(constrained=False)))
    assert capsys.readouterr().out.count("\n") == 1


@pytest.mark.parametrize(
    ("fields", "others"),
    [
        ({"crf": True}, {"scores.bias", "scores.kernel", "transitions", "start", "end"}),
        ({"word_width": 4}, {"scores.bias", "scores.kernel", "encoder.words.embedding"}),
    ],
    ids=["crf", "words"],
)
def test_of_other_taggers_transformers_reads_the_bert(tmp_path, capsys, fields, others):
    trained = tagger(**fields)
    ExportWords(tmp_path / "bert")(trained)
    shown = capsys.readouterr().out
    assert "transformers.BertModel.from_pretrained reads it, and jaxnlp the whole model\n" in shown
    assert load_file(tmp_path / "bert" / "heads.safetensors").keys() == others
    expected = {name: x for name, x in trained.params["encoder"]["bert"].items() if name != "pooler"}
    chex.assert_trees_all_equal(read_pretrained(tmp_path / "bert").params, jax.tree.map(np.asarray, expected))
    with pytest.raises(RuntimeError, match="mismatch"):  # it would add random scores of labels
        transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "bert")
    with pytest.raises(ValueError, match="Could not load model"):
        transformers.pipeline("token-classification", str(tmp_path / "bert"))


def parser():
    processor = ParserProcessor(INPUTS, (), ("root", "nsubj"), tag_column="none")
    config = RecurrentParserConfig(**FIELDS | {"recurrent_widths": (3,)})
    model, shapes = config.build(processor), config.inputs(processor)
    return Trained(Parsing(), model, random_parameters(model, *shapes), processor, name="mine")


def test_of_a_parser_transformers_reads_the_bert(tmp_path, capsys):
    trained = parser()
    ExportWords(tmp_path / "bert")(trained)
    assert "transformers.BertModel.from_pretrained reads it, and" in capsys.readouterr().out
    assert any(name.startswith("encoder.recurrent.") for name in load_file(tmp_path / "bert" / "heads.safetensors"))
    assert read_pretrained(tmp_path / "bert").vocabulary == PIECES
    again, expected = jaxnlp.load_pretrained(tmp_path / "bert"), jax.tree.map(np.asarray, trained.params)
    expected["encoder"]["bert"].pop("pooler")
    chex.assert_trees_all_equal(jax.device_get(again.params), expected)
    assert (again.task, again.processor) == (trained.task, trained.processor)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(tagger, id="bert"),
        pytest.param(parser, id="parser", marks=pytest.mark.thorough),
        pytest.param(
            lambda: tagger(Tagging(constrained=False), crf=True, word_width=4, recurrent_widths=(3,)),
            id="crf",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_an_exported_model_of_words_is_read_back_whole(tmp_path, make):
    trained, text = make(), "the dogs see rome"
    ExportWords(tmp_path / "bert")(trained)
    again = jaxnlp.load_pretrained(tmp_path / "bert")
    assert (again.task, again.processor) == (trained.task, trained.processor)
    predict = "parse" if isinstance(trained.task, Parsing) else "tag"
    assert getattr(again, predict)(text) == getattr(trained, predict)(text)
    for pair in zip(again.attend(text).maps, trained.attend(text).maps, strict=True):
        np.testing.assert_array_equal(*(one.weights for one in pair))
    # A new run begins with all parameters.
    adopted = trained.model.config.adopt(again)
    heads = {} if adopted.matching_heads is None else adopted.matching_heads(trained.processor)
    expected = jax.tree.map(np.asarray, trained.params)
    expected["encoder"]["bert"].pop("pooler", None)
    chex.assert_trees_all_equal(adopted.params | heads, expected)
    assert adopted.config.encoder == dataclasses.replace(BERT, use_pooler=False)


def test_a_model_of_texts_adopts_the_bert_of_an_exported_tagger(tmp_path):
    trained = tagger(word_width=4)
    ExportWords(tmp_path / "bert")(trained)
    for theirs in (trained, jaxnlp.load_pretrained(tmp_path / "bert")):
        found = BertClassifierConfig(pooling="mean").adopt(theirs)
        expected = jax.tree.map(np.asarray, theirs.params["encoder"]["bert"])
        chex.assert_trees_all_equal(found.params, {"encoder": expected})
        assert found.processor == PIECES
    with pytest.raises(ValueError, match="it does not have a BERT: its model is a TaggerConfig; give a run with a"):
        BertClassifierConfig(pooling="mean").adopt(tagger(bert=False, word_width=4))


def test_without_its_other_parameters_an_exported_tagger_is_refused_or_an_encoder(tmp_path, capsys):
    ExportWords(tmp_path / "bert")(tagger(word_width=4))
    capsys.readouterr()
    (tmp_path / "bert" / "heads.safetensors").unlink()
    with pytest.raises(PretrainedError, match=r"has neither heads\.safetensors nor the head of jaxnlp.json; export"):
        jaxnlp.load_pretrained(tmp_path / "bert")
    encoder = jaxnlp.load_pretrained(tmp_path / "bert", ignore=("classifier.",))
    assert isinstance(encoder.task, Classification)
    assert main(["embed", str(tmp_path / "bert"), "the dogs", "--ignore=classifier."]) == 0
    assert json.loads(capsys.readouterr().out)["vector"] == pytest.approx(encoder.embed("the dogs").tolist(), abs=1e-6)
    assert main(["embed", str(tmp_path / "bert"), "the dogs"]) == 2
    assert "has no verb 'embed'; there are: predict, attention, export" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"bert: this model is read whole, got tensors to ignore: scores\."):
        Tagging.from_pretrained(tmp_path / "bert", ignore=("scores.",))


def test_a_tagger_without_a_bert_says_in_one_line_what_to_do(tmp_path):
    without = tagger(bert=False, word_width=4)
    with pytest.raises(
        ValueError, match=r"^mine: Transformers has no class for its model, a Tagger; give --format jax$"
    ):
        ExportWords(tmp_path / "bert")(without)
    assert list(tmp_path.iterdir()) == []
