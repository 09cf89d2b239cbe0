import dataclasses
import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.models.bert import BertConfig
from jaxnlp.models.bert_classifier import BertClassifierConfig
from jaxnlp.models.text_tasks import TextTasksConfig
from jaxnlp.targets import Classes, Scale
from jaxnlp.text.classifier_processor import TextClassifierProcessor
from jaxnlp.text.labels import Labels
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from tests.processors import of_parts
from tests.random_parameters import random_parameters

ENCODER = BertConfig(num_layers=1, num_heads=2, width=8, feed_forward_width=16, max_positions=12)
CONFIG = BertClassifierConfig(encoder=ENCODER, pooling="mean", token_dropout_rate=0.5)
VOCABULARY = WordPieceVocabulary.of_pieces([*SPECIAL, "the", "cat", "sat"])
PROCESSOR = TextClassifierProcessor(VOCABULARY, 12, 2, Classes(("no", "yes", "maybe")))
MODEL = CONFIG.build(PROCESSOR)


@pytest.fixture(scope="module")
def params():
    inputs = [jnp.zeros(shape.shape, shape.dtype) for shape in CONFIG.inputs(PROCESSOR)]
    return jax.jit(MODEL.init)(jax.random.key(0), *inputs)["params"]


@pytest.fixture(scope="module")
def batch():
    found = PROCESSOR.tokenize([("the cat", "sat"), ("cat", "cat sat the")])
    return PROCESSOR.batch(found.tokens, found.segments, 2, 10)


@functools.cache
def forward(deterministic):
    return jax.jit(functools.partial(MODEL.apply, deterministic=deterministic))


def logits(params, batch, deterministic=True, rngs=None):
    return forward(deterministic)({"params": params}, *(batch[name] for name in CONFIG.reads), rngs=rngs)


@pytest.mark.thorough
def test_padding_and_segments(params, batch):
    whole = logits(params, batch)
    assert whole.shape == (2, 3)
    assert whole.dtype == jnp.float32
    shorter = {name: array[:, :8] if array.ndim == 2 else array for name, array in batch.items()}
    np.testing.assert_allclose(logits(params, shorter), whole, atol=1e-6)
    assert not np.allclose(logits(params, batch | {"segments": np.zeros_like(batch["segments"])}), whole)


def test_dropout_of_tokens_needs_a_key_and_never_hides_the_first(params, batch):
    drawn = [logits(params, batch, deterministic=False, rngs={"dropout": jax.random.key(n)}) for n in range(2)]
    assert not np.allclose(*drawn)
    first = batch | {"attention_mask": np.arange(10)[None].repeat(2, 0) == 0}
    assert np.isfinite(logits(params, first, deterministic=False, rngs={"dropout": jax.random.key(0)})).all()


def test_every_parameter_is_described(params):
    paths = [tuple(key.key for key in path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    heads = [path for path in paths if CONFIG.parameter(path).head]
    assert heads == [("head", "bias"), ("head", "kernel")]
    assert [path for path in paths if CONFIG.frozen(path)] == [path for path in paths if path[1] == "pooler"]
    frozen = BertClassifierConfig(encoder=ENCODER, freeze_encoder=True)
    assert {path for path in paths if not frozen.frozen(path)} == set(heads)


def pretrained(params, config=CONFIG, processor=PROCESSOR):
    model = types.SimpleNamespace(config=config)
    return types.SimpleNamespace(model=model, params=params, processor=processor, name="earlier")


def test_a_classifier_of_the_same_targets_gives_its_head(params):
    found = CONFIG.adopt(pretrained(params))
    assert found.params_for(PROCESSOR).keys() == {"head"}
    other = TextClassifierProcessor(VOCABULARY, 12, 2, Classes(("no", "yes")))
    assert found.params_for(other) == {}
    apart = dataclasses.replace(PROCESSOR, pairs="apart")
    assert found.params_for(apart) == {}
    note = BertClassifierConfig(encoder=ENCODER, pooling="cls").adopt(pretrained(params)).notes[-1]
    assert note == "the heads of earlier are not used, since its model.pooling differs"


APART = TextClassifierProcessor(VOCABULARY, 12, 2, Classes(("0", "1")), "apart")
PAIRED = BertClassifierConfig(encoder=ENCODER, pooling="mean", pair_layer=True, cosine_logit=(10.8, 0.82))


@pytest.fixture(scope="module")
def pairs():
    found = APART.tokenize([("the cat", "sat"), ("cat", "cat sat the"), ("the", "the")])
    return APART.batch(found.tokens, found.segments, 4, 6)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("pair_layer", [True, False])
def test_two_classes_of_pairs_read_apart_have_the_function_of_one_logit_of_text_tasks(pairs, pair_layer):
    """The first class's weights are 0: its logit is that of the second one in text tasks; so are all gradients."""
    theirs = TextTasksConfig(
        encoder=ENCODER, pooling="mean", pair_layer="separate" if pair_layer else "none", cosine_logit=(10.8, 0.82)
    ).build(of_parts(VOCABULARY.size, [("quora", Labels("paraphrase", 2, ("0", "1")))]))
    given = random_parameters(theirs, np.zeros((1, 2, 1), np.int32))
    ours = dataclasses.replace(PAIRED, pair_layer=pair_layer).build(APART)

    @jax.jit
    @jax.value_and_grad
    def expected(given):
        logit = theirs.apply({"params": given}, pairs["tokens"], pairs["attention_mask"], "quora", method="predict")
        return jax.nn.log_sigmoid(logit).sum()

    def with_two_logits(given):
        layer = {"pair_layer": given["relations_quora"]} if pair_layer else {}
        head = {"kernel": jnp.pad(given["heads_quora"]["kernel"], [(0, 0), (1, 0)])}
        head["bias"] = jnp.pad(given["heads_quora"]["bias"], [(1, 0)])
        return {"encoder": given["encoder"], "head": head} | layer

    @jax.jit
    @jax.value_and_grad
    def found(given):
        inputs = [pairs[name] for name in PAIRED.reads]
        return jax.nn.log_softmax(ours.apply({"params": with_two_logits(given)}, *inputs))[:, 1].sum()

    (one, gradients), (other, expected_gradients) = jax.device_get((found(given), expected(given)))
    np.testing.assert_allclose(one, other, rtol=1e-5)
    assert gradients["encoder"]["tokens"]["embedding"].any()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), gradients, expected_gradients)


@pytest.mark.thorough
def test_single_texts_have_the_function_and_the_dropout_of_text_tasks():
    """The recorded numbers of CS224N's data sets are of text tasks."""
    labels, rate = Labels("classification", 1, ("a", "b", "c")), 0.3
    theirs = TextTasksConfig(encoder=ENCODER, pooling="mean", token_dropout_rate=rate).build(
        of_parts(VOCABULARY.size, [("sst", labels)])
    )
    ours = BertClassifierConfig(encoder=ENCODER, pooling="mean", token_dropout_rate=rate)
    model = ours.build(dataclasses.replace(PROCESSOR, texts=1))
    given = random_parameters(theirs, np.zeros((1, 1, 1), np.int32))
    params = {"encoder": given["encoder"], "head": given["heads_sst"]}
    tokens = np.random.default_rng(0).integers(5, VOCABULARY.size, (4, 6)).astype(np.int32)
    mask = np.arange(6) < np.array([[6], [4], [3], [5]])
    for options in ({"deterministic": True}, {"deterministic": False, "rngs": {"dropout": jax.random.key(3)}}):

        @jax.jit
        def found_and_expected(options=options):
            found = model.apply({"params": params}, tokens, mask, np.zeros_like(tokens), **options)
            return found, theirs.apply({"params": given}, tokens[:, None], mask[:, None], **options)["sst"]

        np.testing.assert_allclose(*found_and_expected(), rtol=1e-5, atol=1e-6)


def test_a_number_may_be_the_cosine_of_both_vectors(pairs):
    processor = dataclasses.replace(APART, targets=Scale(0.0, 5.0))
    config = BertClassifierConfig(encoder=ENCODER, pooling="mean", similarity="cosine")
    model = config.build(processor)
    params = random_parameters(model, *(np.zeros(x.shape, x.dtype) for x in config.inputs(processor)))
    assert params.keys() == {"encoder"}
    theirs = TextTasksConfig(encoder=ENCODER, pooling="mean").build(
        of_parts(VOCABULARY.size, [("sts", Labels("similarity", 2, highest=5.0))])
    )

    @jax.jit
    def found_and_expected(params):
        found = model.apply({"params": params}, *(pairs[name] for name in config.reads))
        return found, theirs.apply({"params": params}, pairs["tokens"], pairs["attention_mask"])["sts"]

    found, expected = jax.device_get(found_and_expected(params))
    assert found.shape == (4, 1)
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-5)
    np.testing.assert_allclose(found[2], 1.0, rtol=1e-5)
    assert np.ptp(found) > 1e-3


def test_parameters_of_pairs_are_described_and_taken_from_a_classifier_of_the_same_kind(pairs):
    model = PAIRED.build(APART)
    params = random_parameters(model, *(np.zeros(x.shape, x.dtype) for x in PAIRED.inputs(APART)))
    paths = [tuple(key.key for key in path) for path, _ in jax.tree_util.tree_leaves_with_path(params)]
    assert {path[0] for path in paths if PAIRED.parameter(path).head} == {"head"}
    assert [path[0] for path in paths if PAIRED.parameter(path).matrix and path[0] != "encoder"] == [
        "head",
        "pair_layer",
    ]
    with pytest.raises(KeyError, match="this model has no parameter pair_layer/kernel"):
        CONFIG.parameter(("pair_layer", "kernel"))
    assert PAIRED.adopt(pretrained(params, PAIRED, APART)).params_for(APART).keys() == {"head", "pair_layer"}
    for changes in ({"pair_layer": False}, {"cosine_logit": None}, {"cosine_logit": (1.0, 0.5)}):
        note = dataclasses.replace(PAIRED, **changes).adopt(pretrained(params, PAIRED, APART)).notes[-1]
        assert note == f"the heads of earlier are not used, since its model.{next(iter(changes))} differs"


def test_scaled_embeddings_are_scaled(params, batch):
    scaled = BertClassifierConfig(encoder=BertConfig(**(vars(ENCODER) | {"scale_embeddings": True})), pooling="mean")
    tokens = params["encoder"]["tokens"]["embedding"]
    by_hand = params | {"encoder": params["encoder"] | {"tokens": {"embedding": tokens * 8**0.5}}}
    inputs = [batch[name] for name in CONFIG.reads]
    found = jax.jit(scaled.build(PROCESSOR).apply)({"params": params}, *inputs)
    np.testing.assert_allclose(found, logits(by_hand, batch), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"head_dropout_rate": 1.0}, r"model.head_dropout_rate must be in \[0, 1\), got 1.0"),
        ({"token_dropout_rate": -0.1}, r"model.token_dropout_rate must be in"),
        ({"encoder": BertConfig(use_pooler=False)}, "model.pooling pooler needs an encoder with a pooler"),
        (
            {"freeze_encoder": True, "token_dropout_rate": 0.1},
            "model.token_dropout_rate applies only to models without model.freeze_encoder",
        ),
        ({"cosine_logit": (-1.0, 0.8)}, "model.cosine_logit must be a positive slope and a threshold, both finite"),
        ({"similarity": "cosine", "pair_layer": True}, "model.pair_layer applies only to models with a head"),
        ({"similarity": "cosine", "cosine_logit": (9.0, 0.8)}, "model.cosine_logit applies only to models with a head"),
        (
            {"similarity": "cosine", "head_dropout_rate": 0.2},
            "model.head_dropout_rate applies only to models with a head",
        ),
        ({"similarity": "cosine", "freeze_encoder": True}, "model.freeze_encoder leaves nothing to train, since"),
    ],
)
def test_config_that_cannot_be_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        BertClassifierConfig(**fields)


def test_pairs_that_are_read_together_need_two_segments():
    one = BertClassifierConfig(encoder=BertConfig(num_segments=1))
    with pytest.raises(ValueError, match=r"model.encoder.num_segments must be at least 2 for pairs of texts that are"):
        one.check(PROCESSOR)
    one.check(APART)


@pytest.mark.parametrize(
    ("fields", "changes", "message"),
    [
        ({"pair_layer": True}, {"pairs": "together"}, r"model.pair_layer applies only to pairs that are read apart"),
        ({"pair_layer": True}, {"texts": 1, "pairs": "together"}, r"pairs that are read apart \(data.pairs apart\)"),
        ({"cosine_logit": (9.0, 0.8)}, {"targets": Scale(0.0, 1.0)}, "model.cosine_logit applies only to two classes"),
        ({"cosine_logit": (9.0, 0.8)}, {"targets": Classes(("a", "b", "c"))}, "applies only to two classes of pairs"),
        ({"cosine_logit": (9.0, 0.8)}, {"targets": Classes(("a", "b"), True)}, "applies only to two classes of pairs"),
        ({"cosine_logit": (9.0, 0.8)}, {"pairs": "together"}, "applies only to two classes of pairs"),
        ({"similarity": "cosine"}, {}, "model.similarity applies only to numbers of pairs that are read apart"),
        ({"similarity": "cosine"}, {"targets": Scale(0.0, 1.0), "pairs": "together"}, "model.similarity applies only"),
    ],
)
def test_options_that_this_data_does_not_read_are_refused(fields, changes, message):
    PAIRED.check(APART)
    with pytest.raises(ValueError, match=message):
        BertClassifierConfig(encoder=ENCODER, **fields).check(dataclasses.replace(APART, **changes))
