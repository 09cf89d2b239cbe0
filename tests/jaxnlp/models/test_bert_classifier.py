import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.models.bert import BertConfig
from jaxnlp.models.bert_classifier import BertClassifierConfig
from jaxnlp.targets import Classes
from jaxnlp.text.classifier_processor import TextClassifierProcessor
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary

ENCODER = BertConfig(num_layers=1, num_heads=2, width=8, feed_forward_width=16, max_positions=12)
CONFIG = BertClassifierConfig(encoder=ENCODER, pooling="mean", token_dropout_rate=0.5)
VOCABULARY = WordPieceVocabulary.of_pieces([*SPECIAL, "the", "cat", "sat"])
PROCESSOR = TextClassifierProcessor(VOCABULARY, 12, 2, Classes(("no", "yes", "maybe")))
MODEL = CONFIG.build_classifier(PROCESSOR)


@pytest.fixture(scope="module")
def params():
    inputs = [jnp.zeros(shape.shape, shape.dtype) for shape in CONFIG.shapes(PROCESSOR)]
    return jax.jit(MODEL.init)(jax.random.key(0), *inputs)["params"]


@pytest.fixture(scope="module")
def batch():
    found = PROCESSOR.tokenize([("the cat", "sat"), ("cat", "cat sat the")])
    return PROCESSOR.batch(found.tokens, found.segments, 2, 10)


def logits(params, batch, **options):
    return MODEL.apply({"params": params}, *(batch[name] for name in CONFIG.inputs), **options)


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
    note = BertClassifierConfig(encoder=ENCODER, pooling="cls").adopt(pretrained(params)).notes[-1]
    assert note == "the head of earlier is not used, since its model.pooling is mean"


def test_scaled_embeddings_are_scaled(params, batch):
    scaled = BertClassifierConfig(encoder=BertConfig(**(vars(ENCODER) | {"scale_embeddings": True})), pooling="mean")
    tokens = params["encoder"]["tokens"]["embedding"]
    by_hand = params | {"encoder": params["encoder"] | {"tokens": {"embedding": tokens * 8**0.5}}}
    inputs = [batch[name] for name in CONFIG.inputs]
    found = scaled.build_classifier(PROCESSOR).apply({"params": params}, *inputs)
    np.testing.assert_allclose(found, logits(by_hand, batch), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"head_dropout_rate": 1.0}, r"model.head_dropout_rate must lie in \[0, 1\), got 1.0"),
        ({"token_dropout_rate": -0.1}, r"model.token_dropout_rate must lie in"),
        ({"encoder": BertConfig(use_pooler=False)}, "model.pooling pooler needs an encoder with a pooler"),
        ({"freeze_encoder": True, "token_dropout_rate": 0.1}, "model.token_dropout_rate applies only to an encoder"),
    ],
)
def test_config_that_cannot_be_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        BertClassifierConfig(**fields)


def test_pairs_need_two_segments():
    one = BertClassifierConfig(encoder=BertConfig(num_segments=1))
    with pytest.raises(ValueError, match=r"model.encoder.num_segments must be at least 2 for pairs of texts, got 1"):
        one.check_processor(PROCESSOR)
