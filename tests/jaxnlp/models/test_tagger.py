import dataclasses

import chex
import jax
import numpy as np
import pytest

from jaxnlp.models import parameter_shapes
from jaxnlp.models.bert import BertConfig
from jaxnlp.models.tagger import TaggerConfig, only_part
from jaxnlp.tasks import Trained
from jaxnlp.tasks.tagging import Tagging
from jaxnlp.text.tag_schemes import labels_of
from jaxnlp.text.tagger_processor import TaggedSentence, TaggerProcessor
from jaxnlp.text.word_inputs import WordInputs
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from tests.jaxnlp.models.parameter_helpers import assert_described
from tests.random_parameters import random_parameters

PIECES = WordPieceVocabulary.of_pieces([*SPECIAL, "ann", "see", "##s"])
INPUTS = WordInputs.of_sentences([["Ann", "sees", "Rome"]], pieces=PIECES, max_pieces=12, max_characters=6)
PROCESSOR = TaggerProcessor(INPUTS, labels_of(("PER",), "bio"), "bio")
BERT = BertConfig(num_layers=1, num_heads=2, width=8, max_positions=12)
SMALL = {"word_width": 5, "character_width": 4, "character_features": 6, "encoder": BERT}
NONE = {"word_width": 0, "character_features": 0, "encoder": BERT, "recurrent_widths": ()}
VARIANTS = {
    "bert": TaggerConfig(bert=True, crf=False, **NONE),
    "bert_crf": TaggerConfig(bert=True, **NONE),
    "bert_bilstm_crf": TaggerConfig(bert=True, **(NONE | {"recurrent_widths": (3,)})),
    "bilstm_crf": TaggerConfig(recurrent_widths=(3, 2), **SMALL),
    "bigru_softmax": TaggerConfig(recurrent_widths=(3,), crf=False, cell="gru", bigram_width=2, **SMALL),
}
BATCH = PROCESSOR.batch([PROCESSOR.encode(TaggedSentence("1", ("Ann", "sees", "Rome")))], 2, 8)


def built(config):
    return config.build(PROCESSOR), config.inputs(PROCESSOR)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_scores_labels_and_describes_its_parameters(name):
    config = VARIANTS[name]
    model, inputs = built(config)
    shapes = parameter_shapes(model, *inputs)
    arrays = [BATCH[name] for name in config.reads]
    found = jax.eval_shape(lambda p: model.apply({"params": p}, *arrays), shapes)
    chex.assert_shape(found.scores, (2, 8, 3))
    chex.assert_shape(found.chain, [(3, 3), (3,), (3,)])
    entries = assert_described(config, shapes)
    assert {path[0] for path, entry in entries.items() if entry.head} == {"scores"} | (
        {"transitions", "start", "end"} if config.crf else set()
    )
    # The layers above a BERT may learn faster than it; without one, nothing is below another.
    slow = {path[:2] for path, entry in entries.items() if entry.depth != "above"}
    assert slow == ({("encoder", "bert")} if config.bert else set())
    assert (("encoder", "bert", "tokens", "embedding") in entries) == config.bert
    assert any(path[:2] == ("encoder", "recurrent") for path in entries) == bool(config.recurrent_widths)


def test_a_softmax_has_no_transitions_and_a_crf_has_its_own():
    softmax, crf = VARIANTS["bert"], VARIANTS["bert_crf"]
    for config in (softmax, crf):
        model, _ = built(config)
        arrays = [BATCH[name] for name in config.reads]
        params = random_parameters(model, *arrays)
        found = jax.jit(lambda p, m=model, a=arrays: m.apply({"params": p}, *a))(params)
        assert found.scores.dtype == np.float32
        expected = np.zeros((3, 3)) if config is softmax else params["transitions"]
        np.testing.assert_array_equal(found.chain.transitions, expected)


def test_layers_of_labels_are_adopted_only_for_the_same_labels():
    config = VARIANTS["bilstm_crf"]
    model, inputs = built(config)
    trained = Trained(Tagging(), model, random_parameters(model, *inputs), PROCESSOR, name="theirs")
    found = config.adopt(trained)
    assert set(found.params) == {"encoder"}
    assert set(found.matching_heads(PROCESSOR)) == {"scores", "transitions", "start", "end"}
    turned = found.matching_heads(dataclasses.replace(PROCESSOR, labels=PROCESSOR.labels[::-1]))
    for name, x in trained.params["scores"].items():
        np.testing.assert_array_equal(turned["scores"][name], x[..., ::-1])
    np.testing.assert_array_equal(turned["transitions"], trained.params["transitions"][::-1, ::-1])
    np.testing.assert_array_equal(turned["start"], trained.params["start"][::-1])
    other = dataclasses.replace(PROCESSOR, labels=labels_of(("LOC",), "bio"))
    assert found.matching_heads(other) == {}
    narrower = dataclasses.replace(config, recurrent_widths=(4,), input_dropout_rate=0.1).adopt(trained)
    assert narrower.config == dataclasses.replace(config, input_dropout_rate=0.1)
    assert narrower.notes == ("from theirs: model.recurrent_widths (3, 2)",)


NAMED = (("upos", ("A", "B")), ("feats", ("_", "C", "D")))
PARTS = dataclasses.replace(PROCESSOR, labels=(), scheme="none", parts=NAMED)


def several(config, processor=PARTS):
    model = config.build(processor)
    return Trained(Tagging(), model, random_parameters(model, *config.inputs(processor)), processor, name="theirs")


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["bilstm_crf", "bert"])
def test_each_of_several_parts_has_its_own_layers_and_is_a_tagger_by_itself(name):
    config = VARIANTS[name]
    trained, arrays = several(config), [BATCH[array] for array in config.reads]
    layers = ("scores", "transitions", "start", "end") if config.crf else ("scores",)
    expected = {f"{layer}_{part}" for layer in layers for part in ("upos", "feats")}
    assert trained.params.keys() == {"encoder"} | expected
    assert {path[0] for path, one in assert_described(config, trained.params).items() if one.head} == expected
    found = jax.jit(lambda p: trained.model.apply({"params": p}, *arrays))(trained.params)
    assert {part: one.scores.shape[-1] for part, one in found.items()} == {"upos": 2, "feats": 3}
    for part in found:
        one = only_part(trained, part)
        assert one.processor == PARTS.by_part[part]
        alone = jax.jit(lambda p, model=one.model: model.apply({"params": p}, *arrays))(one.params)
        chex.assert_trees_all_close(alone, found[part], atol=1e-6)
    with pytest.raises(ValueError, match="theirs does not have the part 'xpos'; it has: upos, feats"):
        only_part(trained, "xpos")
    with pytest.raises(ValueError, match="does not have the part 'upos'; it has: no parts"):
        only_part(only_part(trained, "upos"), "upos")


def test_layers_of_parts_are_adopted_for_parts_of_the_same_name_and_labels(caplog):
    config = VARIANTS["bilstm_crf"]
    found = config.adopt(several(config)).matching_heads
    layers = ("scores", "transitions", "start", "end")
    assert found(PARTS).keys() == {f"{name}_{part}" for name in layers for part in ("upos", "feats")}
    other = dataclasses.replace(PARTS, parts=(("upos", ("B", "A")), ("feats", ("_",)), ("xpos", ("X",))))
    assert found(other).keys() == {f"{name}_upos" for name in layers}
    assert "the head of theirs is not used: its labels differ" in caplog.text
    assert "no head of theirs is used for xpos: it predicts upos, feats" in caplog.text
    assert found(PROCESSOR) == {}


def test_dropout_rates_and_the_file_of_vectors_are_no_part_of_the_architecture():
    config = VARIANTS["bilstm_crf"]
    other = dataclasses.replace(config, input_dropout_rate=0.1, vectors_path="x", encoder=BertConfig())
    assert config.architecture() == other.architecture()
    assert config.architecture() != dataclasses.replace(config, crf=False).architecture()
