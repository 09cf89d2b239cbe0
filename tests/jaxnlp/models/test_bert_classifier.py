import dataclasses
import functools
import math
import types

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.models import bert_classifier
from jaxnlp.models.bert import Bert, BertConfig
from jaxnlp.models.bert_classifier import BertClassifierConfig
from jaxnlp.models.text_vectors import pool
from jaxnlp.targets import Number, OneClass, SeveralClasses
from jaxnlp.text.classifier_processor import TextClassifierProcessor, TextPart, one_part
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from tests.random_parameters import random_parameters

ENCODER = BertConfig(num_layers=1, num_heads=2, width=8, feed_forward_width=16, max_positions=12)
CONFIG = BertClassifierConfig(encoder=ENCODER, pooling="mean", token_dropout_rate=0.5)
VOCABULARY = WordPieceVocabulary.of_pieces([*SPECIAL, "the", "cat", "sat"])
TOGETHER = TextClassifierProcessor(VOCABULARY, 12, one_part(OneClass(("no", "yes", "maybe")), 2))
PARTS = {
    "sst": TextPart(OneClass(("0", "1", "2", "3", "4"))),
    "cfimdb": TextPart(OneClass(("0", "1"))),
    "quora": TextPart(OneClass(("0", "1")), 2),
    "sts": TextPart(Number(0.0, 5.0), 2),
}
PAIRED = BertClassifierConfig(encoder=ENCODER, pooling="mean", pair_layer="separate", cosine_logit=(10.8, 0.82))


def parts(names="sst cfimdb quora sts"):
    """A processor of these parts, whose pairs are read apart."""
    chosen = tuple((name, PARTS[name]) for name in names.split())
    pairs = "apart" if any(part.texts == 2 for _, part in chosen) else "together"
    return TextClassifierProcessor(VOCABULARY, 12, chosen, pairs)


def apart(targets=OneClass(("0", "1")), pairs="apart"):  # noqa: B008  # a constant
    """A processor of one part without a name, of pairs."""
    return TextClassifierProcessor(VOCABULARY, 12, one_part(targets, 2), pairs)


def batch(texts, rows=3, length=6, seed=0):
    """What the model reads, of texts, or of pairs that are read apart."""
    generator = np.random.default_rng(seed)
    shape = (rows, length) if texts == 1 else (rows, 2, length)
    tokens = generator.integers(5, VOCABULARY.size, shape).astype(np.int32)
    mask = np.arange(length) < generator.integers(2, length + 1, (*shape[:-1], 1))
    return tokens, mask, np.zeros_like(tokens)


@functools.cache
def build(config, processor):
    """The model, and parameters larger than initial ones, so that every parameter matters."""
    model = config.build(processor)
    return model, random_parameters(model, *(np.zeros(x.shape, x.dtype) for x in config.inputs(processor)))


@functools.partial(jax.jit, static_argnames=("model", "part", "deterministic"))
def apply(model, params, arrays, **arguments):
    return model.apply({"params": params}, *arrays, **arguments)


def paths_of(params):
    return [tuple(key.key for key in path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]


@pytest.fixture(scope="module")
def together():
    """The model of pairs that are read together, its parameters, and a batch."""
    found = TOGETHER.tokenize([("the cat", "sat"), ("cat", "cat sat the")])
    given = TOGETHER.batch(found.tokens, found.segments, 2, 10)
    return *build(CONFIG, TOGETHER), tuple(given[name] for name in CONFIG.reads)


@pytest.mark.thorough
def test_padding_and_segments(together):
    model, params, arrays = together
    whole = apply(model, params, arrays)
    assert (whole.shape, whole.dtype) == ((2, 3), jnp.float32)
    np.testing.assert_allclose(apply(model, params, tuple(x[:, :8] for x in arrays)), whole, atol=1e-6)
    assert not np.allclose(apply(model, params, (*arrays[:2], np.zeros_like(arrays[2]))), whole)


@pytest.mark.thorough
def test_dropout_of_tokens_needs_a_key_and_never_hides_the_first(together):
    model, params, arrays = together
    drawn = [apply(model, params, arrays, deterministic=False, rngs={"dropout": jax.random.key(n)}) for n in range(2)]
    assert not np.allclose(*drawn)
    first = arrays[0], np.arange(10)[None].repeat(2, 0) == 0, arrays[2]
    assert np.isfinite(apply(model, params, first, deterministic=False, rngs={"dropout": jax.random.key(0)})).all()


@pytest.mark.thorough
def test_token_dropout_acts_as_padding_in_training_and_keeps_the_first_token_and_pairs_next_to_texts(monkeypatch):
    encoder = dataclasses.replace(ENCODER, dropout_rate=0.0, attention_dropout_rate=0.0)
    config = dataclasses.replace(CONFIG, encoder=encoder, head_dropout_rate=0.0, token_dropout_rate=0.4)
    model, params = build(config, parts("sst quora"))
    tokens, mask, segments = batch(1)
    kept = np.random.default_rng(3).random(tokens.shape) < 0.6
    drawn = []

    def known(key, shape, rate, *, first_row):
        drawn.append((shape, rate, first_row))
        return jnp.array(kept)

    monkeypatch.setattr(bert_classifier, "keep_mask", known)
    in_training = {"deterministic": False, "rngs": {"dropout": jax.random.key(0)}}
    found = apply(model, params, (tokens, mask, segments), part="sst", **in_training)
    assert drawn == [(kept.shape, 0.4, 0)]
    kept[:, 0] = True
    seen = mask & kept
    assert seen.sum() < mask.sum()
    np.testing.assert_allclose(found, apply(model, params, (tokens, seen, segments), part="sst"), atol=1e-6)
    apply(model, params, batch(2), part="quora", **in_training)
    assert len(drawn) == 1


@pytest.mark.sweep(1)
@pytest.mark.parametrize("processor", [apart(), parts("quora sts")])
def test_token_dropout_hides_other_tokens_of_each_text_of_a_pair_read_apart(processor, monkeypatch):
    encoder = dataclasses.replace(ENCODER, dropout_rate=0.0, attention_dropout_rate=0.0)
    config = dataclasses.replace(CONFIG, encoder=encoder, head_dropout_rate=0.0)
    config.check(processor)
    model, params = build(config, processor)
    part = processor.parts[0][0]
    tokens, mask, segments = (np.repeat(x[:1], 3, 0)[:, [0, 0]] for x in batch(2, length=12))
    masks = []
    monkeypatch.setattr(
        bert_classifier, "pool", lambda output, seen, kind: masks.append(seen) or pool(output, seen, kind)
    )

    def apply(params, key):
        given = (tokens, np.ones_like(mask), segments)
        model.apply({"params": params}, *given, part=part, deterministic=False, rngs={"dropout": key})
        return masks[0]

    seen = np.asarray(jax.jit(apply)(params, jax.random.key(0)))
    assert seen.shape == (6, 12)
    assert seen[:, 0].all()
    assert len(np.unique(seen, axis=0)) == 6  # of each text of each pair


@pytest.mark.thorough
def test_a_part_has_the_same_output_alone_and_among_all_parts():
    config = BertClassifierConfig(encoder=ENCODER, similarity="cosine")
    model, params = build(config, parts())
    every = apply(model, params, batch(2))
    shapes = {"sst": (3, 5), "cfimdb": (3, 2), "quora": (3, 2), "sts": (3, 1)}
    assert {name: output.shape for name, output in every.items()} == shapes
    for name, part in PARTS.items():
        arrays = batch(2) if part.texts == 2 else tuple(x[:, 0] for x in batch(2))
        assert every[name].dtype == jnp.float32
        chex.assert_trees_all_close(apply(model, params, arrays, part=name), every[name], atol=1e-6)


@pytest.mark.thorough
def test_initialisation_makes_every_head_with_values_that_other_parts_do_not_change():
    config = dataclasses.replace(PAIRED, cosine_logit=None)

    def initial(processor):
        inputs = (np.zeros(x.shape, x.dtype) for x in config.inputs(processor))
        return jax.jit(config.build(processor).init)(jax.random.key(0), *inputs)["params"]

    every, single = initial(parts()), initial(parts("quora"))
    layers = {"relations_quora", "relations_sts"}
    assert every.keys() == {"encoder", *(f"heads_{name}" for name in PARTS), *layers}
    assert single.keys() == {"encoder", "heads_quora", "relations_quora"}
    chex.assert_trees_all_equal(single, {name: every[name] for name in single})
    assert initial(apart()).keys() == {"encoder", "head", "pair_layer"}


@functools.partial(jax.jit, static_argnames="config")
def vector(config, params, tokens, mask):
    """Of texts, [B, D], pooled as in the config."""
    encoding = Bert(config.encoder, VOCABULARY.size).apply({"params": params["encoder"]}, tokens, None, mask)
    return pool(encoding, mask, config.pooling)


@pytest.mark.thorough
@pytest.mark.parametrize("pooling", ["cls", "pooler", "mean"])
def test_outputs_are_those_of_heads_on_the_vectors_of_single_texts(pooling):
    config = BertClassifierConfig(encoder=ENCODER, pooling=pooling, similarity="cosine")
    model, params = build(config, parts())
    tokens, mask, _ = arrays = batch(2)
    u, v = (np.asarray(vector(config, params, tokens[:, text], mask[:, text])) for text in (0, 1))
    found = apply(model, params, arrays)
    head = params["heads_sst"]
    np.testing.assert_allclose(found["sst"], u @ head["kernel"] + head["bias"][None], atol=1e-5)
    features = np.concatenate([u, v, u - v, np.abs(u - v), u * v], axis=1)
    logit = features @ params["heads_quora"]["kernel"] + params["heads_quora"]["bias"][None]
    np.testing.assert_allclose(found["quora"], np.concatenate([0 * logit, logit], axis=1), atol=1e-4)
    expected = [np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(u, v, strict=True)]
    np.testing.assert_allclose(found["sts"][:, 0], expected, atol=1e-5)


@pytest.mark.thorough
def test_the_logit_of_the_cosine_is_added_only_to_the_second_of_two_classes():
    plain = BertClassifierConfig(encoder=ENCODER, pooling="mean", similarity="cosine")
    config = dataclasses.replace(plain, cosine_logit=(10.0, 0.8))
    (model, params), (other, _) = build(plain, parts()), build(config, parts())
    without, found = (apply(one, params, batch(2)) for one in (model, other))
    np.testing.assert_allclose(
        found["quora"][:, 1] - without["quora"][:, 1], 10.0 * (without["sts"][:, 0] - 0.8), atol=1e-5
    )
    for name in ("sst", "cfimdb", "sts"):
        np.testing.assert_array_equal(found[name], without[name])
    np.testing.assert_array_equal(found["quora"][:, 0], 0.0)


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("pair_layer", "similarity", "layers"),
    [
        ("none", "learned", []),
        ("separate", "learned", ["relations_quora", "relations_sts"]),
        ("separate", "cosine", ["relations_quora"]),
        ("shared", "learned", ["relations_pairs"]),
        ("shared", "cosine", ["relations_pairs"]),
    ],
)
def test_pair_layers_are_those_of_the_config(pair_layer, similarity, layers):
    config = BertClassifierConfig(encoder=ENCODER, pair_layer=pair_layer, similarity=similarity)
    model, params = build(config, parts())
    assert sorted(name for name in params if name.startswith("relations")) == layers
    assert ("heads_sts" in params) == (similarity == "learned")
    found = apply(model, params, batch(2))
    for name in layers:
        changed = {**params, name: jax.tree.map(lambda x: x + 1.0, params[name])}
        for part, output in apply(model, changed, batch(2)).items():
            of_pairs = PARTS[part].texts == 2 and f"heads_{part}" in params
            concerned = name == f"relations_{part}" or (name == "relations_pairs" and of_pairs)
            assert (np.abs(output - found[part]).max() > 1e-4) == concerned, (name, part)


@pytest.mark.thorough
def test_padding_changes_no_output():
    model, params = build(CONFIG, parts())
    tokens, mask, segments = batch(2)
    garbage = np.where(mask, tokens, 3)
    expected = apply(model, params, (tokens, mask, segments))
    chex.assert_trees_all_close(apply(model, params, (garbage, mask, segments)), expected, atol=1e-6)


@pytest.mark.parametrize("processor", [TOGETHER, apart(), parts()], ids=["together", "apart", "parts"])
def test_every_parameter_has_its_axes_and_its_role(processor):
    config = PAIRED if processor.apart else CONFIG
    _, params = build(config, processor)
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        names = tuple(key.key for key in path)
        parameter = config.parameter(names)
        assert len(parameter.axes) == leaf.ndim, names
        assert parameter.head == (names[0] == "head" or names[0].startswith("heads_")), names
        assert parameter.matrix == (names[-1] == "kernel") or names[0] == "encoder", names
    with pytest.raises(KeyError, match="this model has no parameter classifier/kernel"):
        config.parameter(("classifier", "kernel"))


def test_frozen_parameters_are_those_of_an_unread_pooler():
    paths = paths_of(build(CONFIG, parts())[1])
    for pooling, unread in (("pooler", set()), ("mean", {"pooler"}), ("cls", {"pooler"})):
        free = dataclasses.replace(CONFIG, pooling=pooling)
        assert {path[1] for path in paths if free.frozen(path)} == unread


def pretrained(config, processor):
    model, params = build(config, processor)
    return types.SimpleNamespace(model=model, params=params, processor=processor, name="earlier")


@pytest.mark.parametrize(
    ("config", "processor", "others", "heads"),
    [
        (CONFIG, TOGETHER, [apart(OneClass(("no", "yes")), "together"), apart(TOGETHER.targets)], {"head"}),
        (PAIRED, apart(), [apart(OneClass(("a", "b")))], {"head", "pair_layer"}),
        (PAIRED, parts("sst quora"), [parts("sst"), parts()], {"heads_sst", "heads_quora", "relations_quora"}),
    ],
    ids=["together", "apart", "parts"],
)
def test_a_classifier_of_the_same_parts_gives_its_heads(config, processor, others, heads, caplog):
    found = config.adopt(pretrained(config, processor))
    assert found.params.keys() == {"encoder"}
    assert found.matching_heads(processor).keys() == heads
    for other in others:
        assert found.matching_heads(other) == {}
        assert "the head of earlier is not used" in caplog.text
        caplog.clear()


def test_a_head_of_the_same_classes_in_another_order_has_the_order_of_the_data(caplog):
    three = apart(OneClass(("b", "c", "a")), "together")
    theirs = pretrained(CONFIG, three)
    found = CONFIG.adopt(theirs).matching_heads(apart(OneClass(("a", "b", "c")), "together"))
    for name, x in theirs.params["head"].items():
        np.testing.assert_array_equal(found["head"][name], x[..., [2, 0, 1]])
    assert not caplog.text
    twice = PAIRED.adopt(pretrained(PAIRED, apart()))  # two classes of pairs that are read apart have one bias
    assert twice.matching_heads(apart(OneClass(apart().targets.names[::-1]))) == {}


def test_heads_of_another_kind_are_not_used_and_a_note_says_so():
    theirs = pretrained(PAIRED, apart())
    for changes in ({"pair_layer": "none"}, {"cosine_logit": None}, {"cosine_logit": (1.0, 0.5)}, {"pooling": "cls"}):
        note = dataclasses.replace(PAIRED, **changes).adopt(theirs).notes[-1]
        assert note == f"the heads of earlier are not used, since its model.{next(iter(changes))} differs"


@pytest.mark.thorough
def test_scaled_embeddings_are_scaled(together):
    _, params, arrays = together
    scaled = dataclasses.replace(CONFIG, encoder=dataclasses.replace(ENCODER, scale_embeddings=True))
    tokens = params["encoder"]["tokens"]["embedding"]
    by_hand = params | {"encoder": params["encoder"] | {"tokens": {"embedding": tokens * 8**0.5}}}
    found = apply(scaled.build(TOGETHER), params, arrays)
    np.testing.assert_allclose(found, apply(together[0], by_hand, arrays), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"head_dropout_rate": 1.0}, r"model.head_dropout_rate must be in \[0, 1\), got 1.0"),
        ({"token_dropout_rate": -0.1}, r"model.token_dropout_rate must be in"),
        ({"pooling": "sum"}, "model.pooling must be one of cls, pooler, mean, .*got 'sum'"),
        ({"similarity": "relation"}, "model.similarity must be one of"),
        ({"encoder": BertConfig(use_pooler=False)}, "model.pooling pooler needs an encoder with a pooler"),
        *(
            ({"cosine_logit": given}, "model.cosine_logit must be a positive slope and a threshold, both finite")
            for given in ((-1.0, 0.8), (0.0, 0.8), (math.nan, 0.8), (math.inf, 0.8), (10.0, math.nan))
        ),
    ],
)
def test_config_that_cannot_be_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        BertClassifierConfig(**fields)


@pytest.mark.parametrize(
    ("fields", "processor", "message"),
    [
        ({"encoder": BertConfig(num_segments=1)}, TOGETHER, r"model.encoder.num_segments must be at least 2"),
        ({"pair_layer": "shared"}, TOGETHER, r"model.pair_layer applies .*\(data.pairs apart\)"),
        ({"pair_layer": "shared"}, parts("sst"), "model.pair_layer applies"),
        ({"pair_layer": "separate", "similarity": "cosine"}, parts("sst sts"), "model.pair_layer applies"),
        ({"cosine_logit": (9.0, 0.8)}, parts("sst sts"), "model.cosine_logit applies only to two classes"),
        ({"cosine_logit": (9.0, 0.8)}, apart(OneClass(("a", "b", "c"))), "model.cosine_logit applies"),
        ({"cosine_logit": (9.0, 0.8)}, apart(SeveralClasses(("a", "b"))), "model.cosine_logit applies"),
        ({"cosine_logit": (9.0, 0.8)}, TOGETHER, "model.cosine_logit applies"),
        ({"similarity": "cosine"}, apart(), "model.similarity applies only to numbers of pairs"),
        ({"similarity": "cosine"}, apart(Number(0.0, 1.0), "together"), "model.similarity applies only to numbers"),
        ({"similarity": "cosine", "head_dropout_rate": 0.2}, parts("sts"), "model.head_dropout_rate applies"),
    ],
)
def test_options_that_this_data_does_not_read_are_refused(fields, processor, message):
    PAIRED.check(parts())
    dataclasses.replace(CONFIG, similarity="cosine").check(parts())
    with pytest.raises(ValueError, match=message):
        BertClassifierConfig(**{"encoder": ENCODER, **fields}).check(processor)
