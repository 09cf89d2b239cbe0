import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

from jaxnlp.convert.encoder_weights import from_huggingface, to_huggingface
from jaxnlp.models.bert import BertConfig
from jaxnlp.models.bert_pretraining import BertPretrainingConfig
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.tasks.masked_language_model import MaskedLanguageModel
from tests.jaxnlp.models.parameter_helpers import assert_described
from tests.processors import sized
from tests.random_parameters import random_parameters

VOCABULARY, LENGTH, PREDICTIONS = 31, 10, 4
ENCODER = BertConfig(num_layers=2, num_heads=2, width=8, feed_forward_width=20, max_positions=12)
CONFIG = BertPretrainingConfig(encoder=ENCODER)


def batch(rows=5, seed=0):
    """Rows of 4 to 10 tokens, some of them to guess."""
    generator = np.random.default_rng(seed)
    ends = np.append(generator.integers(4, LENGTH + 1, rows - 1), LENGTH)
    places = np.arange(LENGTH)[None]
    positions = np.stack([generator.permutation(end)[:PREDICTIONS] for end in ends]).astype(np.int32)
    return {
        # Not 0: PyTorch gives the embedding of padding no gradient.
        "tokens": generator.integers(1, VOCABULARY, (rows, LENGTH)).astype(np.int32),
        "segments": (places >= ends[:, None] // 2).astype(np.int32),
        "attention_mask": places < ends[:, None],
        "positions": positions,
        "targets": generator.integers(1, VOCABULARY, positions.shape).astype(np.int32),
        "predicted": np.arange(PREDICTIONS)[None] < generator.integers(1, PREDICTIONS + 1, rows)[:, None],
        "follows": (np.arange(rows) % 3 != 0).astype(np.int32),
        "loss_mask": np.full(rows, True),
    }


def rival(encoder=ENCODER):
    """Transformers' BERT with both heads and random weights, larger than initial ones, so that all parts count."""
    torch.manual_seed(0)
    settings = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=encoder.width,
        num_hidden_layers=encoder.num_layers,
        num_attention_heads=encoder.num_heads,
        intermediate_size=encoder.feed_forward_width,
        max_position_embeddings=encoder.max_positions,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="eager",
    )
    model = transformers.BertForPreTraining(settings)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter + 0.2 * torch.randn_like(parameter))
    return model


def parameters(tensors):
    held = {name: tensor.detach().numpy() for name, tensor in tensors.items()}
    params, heads = from_huggingface(held, ENCODER, VOCABULARY)
    return {"encoder": params, "heads": heads}


def test_loss_and_all_gradients_are_those_of_transformers():
    theirs, held = rival(), batch()
    labels = np.full(held["tokens"].shape, -100)
    for row in range(len(labels)):
        chosen = held["predicted"][row]
        labels[row, held["positions"][row][chosen]] = held["targets"][row][chosen]
    found = theirs(
        *[torch.from_numpy(held[name]).long() for name in ("tokens", "attention_mask", "segments")],
        labels=torch.from_numpy(labels),
        next_sentence_label=torch.from_numpy(1 - held["follows"]).long(),  # 0: a continuation
    )
    found.loss.backward()
    gradients = parameters({name: parameter.grad for name, parameter in theirs.named_parameters()})
    params = parameters(theirs.state_dict())
    objective = MaskedLanguageModel().objective(CONFIG.build(sized(VOCABULARY)), None)
    step = jax.jit(jax.value_and_grad(lambda params, held: objective.loss(params, held, None, ()), has_aux=True))
    (loss, _), ours = step(params, held)
    np.testing.assert_allclose(loss, found.loss.item(), rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5 * max(1.0, float(np.abs(b).max()))), ours, gradients
    )


def test_parameters_are_those_of_the_encoder_and_the_heads():
    init = CONFIG.build(sized(VOCABULARY)).init
    shapes = jax.eval_shape(init, jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"]
    theirs = rival().state_dict()
    params = parameters(theirs)
    chex.assert_trees_all_equal_shapes(shapes, params)
    assert params.keys() == {"encoder", "heads"}
    names = set(to_huggingface(params["encoder"], ENCODER, VOCABULARY, params["heads"]))
    assert names == set(theirs) - {"bert.embeddings.position_ids"}
    w, b = CONFIG.build(sized(VOCABULARY)).output_layer(params)
    assert (w.shape, b.shape) == ((8, VOCABULARY), (VOCABULARY,))
    np.testing.assert_array_equal(w.T, params["encoder"]["tokens"]["embedding"])


def test_outputs_at_positions_are_those_of_all_outputs_there():
    held, params = batch(), {"params": parameters(rival().state_dict())}
    model, inputs = CONFIG.build(sized(VOCABULARY)), [held[name] for name in ("tokens", "segments", "attention_mask")]

    @jax.jit
    def outputs(params):
        return model.apply(params, *inputs), model.apply(params, *inputs, held["positions"])

    (whole, follows), (some, again) = jax.device_get(outputs(params))
    assert whole.shape == (5, LENGTH, 8)
    assert some.shape == (5, PREDICTIONS, 8)
    assert (follows.shape, follows.dtype) == ((5, 2), jnp.float32)
    chex.assert_trees_all_close(follows, again, atol=1e-6)
    expected = [[whole[row, place] for place in held["positions"][row]] for row in range(5)]
    np.testing.assert_allclose(some, np.array(expected), atol=1e-6)


@pytest.mark.thorough
def test_dropout_is_for_training_and_follows_the_key():
    model, held, params = CONFIG.build(sized(VOCABULARY)), batch(), parameters(rival().state_dict())

    @jax.jit
    def outputs(seed):
        """In training, and in evaluation."""
        rngs = {"dropout": jax.random.key(seed)}
        read = functools.partial(model.apply, {"params": params}, held["tokens"])
        return read(deterministic=False, rngs=rngs)[0], read()[0]

    (one, evaluated), (again, _), (other, _) = jax.device_get([outputs(seed) for seed in (0, 0, 1)])
    assert (one == again).all()
    assert (one != other).any()
    assert (one != evaluated).any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"use_pooler": False}, r"model\.encoder\.use_pooler must be True, got False"),
        (
            {"num_segments": 1},
            r"model\.encoder\.num_segments must be at least 2, .*, got 1",
        ),
    ],
)
def test_an_encoder_that_cannot_tell_what_follows_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        BertPretrainingConfig(encoder=dataclasses.replace(ENCODER, **changes))


def test_every_parameter_is_described_and_no_other():
    for changes in ({}, {"pre_norm": True}, {"positions": "sinusoidal"}):
        config = BertPretrainingConfig(encoder=dataclasses.replace(ENCODER, **changes))
        init = config.build(sized(VOCABULARY)).init
        shapes = jax.eval_shape(lambda key, init=init: init(key, jnp.zeros((1, 1), jnp.int32)), jax.random.key(0))
        found = assert_described(config, shapes["params"])
        heads = {path for path, entry in found.items() if entry.head}
        assert heads == {("heads", "token_bias"), ("heads", "follows", "kernel"), ("heads", "follows", "bias")}
        assert found["encoder", "blocks", "attention", "qkv", "kernel"].axes == "LD3HK"
        assert found["encoder", "embedding_norm", "scale"].depth == "below"
        assert found["heads", "transform", "kernel"].depth == "above"


def test_dropout_and_compute_are_not_part_of_the_architecture():
    changed = BertPretrainingConfig(
        encoder=dataclasses.replace(ENCODER, dropout_rate=0.3), compute=TransformerCompute(remat=True)
    )
    assert changed.architecture() == CONFIG.architecture()
    other = BertPretrainingConfig(encoder=dataclasses.replace(ENCODER, pre_norm=True))
    assert other.architecture() != CONFIG.architecture()
    assert CONFIG.max_length == ENCODER.max_positions


@pytest.mark.thorough
def test_embeddings_may_be_narrower_than_the_model():
    config = dataclasses.replace(CONFIG, encoder=dataclasses.replace(ENCODER, embedding_width=6))
    model = config.build(sized(VOCABULARY))
    tokens = batch()["tokens"]
    params = random_parameters(model, tokens)
    assert_described(config, params)
    hidden, _ = model.apply({"params": params}, tokens)
    kernel, bias = model.output_layer(params)
    assert (hidden @ kernel + bias[None, None]).shape == (*tokens.shape, VOCABULARY)
    assert params["encoder"]["embedding_projection"]["kernel"].shape == (6, 8)


def test_only_a_bert_is_pretrained_with_next_sentences():
    with pytest.raises(ValueError, match=r"model.encoder.model_type must be bert, got electra"):
        BertPretrainingConfig(encoder=dataclasses.replace(ENCODER, model_type="electra"))
