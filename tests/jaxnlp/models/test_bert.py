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
from jaxnlp.models.bert import Bert, BertConfig
from jaxnlp.models.bert_pretraining import PretrainingHeads
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.ops.positions import sinusoidal_positions
from tests.random_parameters import random_parameters

VOCABULARY, LENGTH = 29, 9
CONFIG = BertConfig(num_layers=2, num_heads=2, width=8, feed_forward_width=20, max_positions=12)


def batch(rows=4, length=LENGTH, seed=0):
    """Tokens, segments, and which of the tokens are none: texts of random lengths, the last one whole."""
    generator = np.random.default_rng(seed)
    # Not 0: PyTorch gives the embedding of padding no gradient.
    tokens = generator.integers(1, VOCABULARY, (rows, length)).astype(np.int32)
    ends = np.append(generator.integers(1, length + 1, rows - 1), length)
    firsts = generator.integers(0, length, rows)
    places = np.arange(length)
    segments = (places[None] >= firsts[:, None]).astype(np.int32)
    return tokens, segments, places[None] < ends[:, None]


@functools.cache
def initial(config=CONFIG):
    """Parameters about as large as initial ones."""
    return random_parameters(Bert(config, VOCABULARY), np.zeros((1, 1), np.int32), spread=0.02)


@functools.partial(jax.jit, static_argnames=("model", "deterministic"))
def apply(model, params, tokens, segments=None, mask=None, **options):
    return model.apply({"params": params}, tokens, segments, mask, **options)


def encode(*arguments, **options):
    """What BERT makes of tokens, on the host."""
    return jax.device_get(apply(*arguments, **options))


def rival(config=CONFIG, kind=transformers.BertModel):
    """Transformers' BERT of the same shape with random weights, larger than initial ones, so that all parts count."""
    torch.manual_seed(0)
    settings = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=config.width,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        intermediate_size=config.feed_forward_width,
        max_position_embeddings=config.max_positions,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation="eager",
    )
    model = kind(settings)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter + 0.2 * torch.randn_like(parameter))
    return model


def tensors_of(model):
    return {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        dataclasses.replace(CONFIG, num_layers=1, num_heads=1),
        dataclasses.replace(CONFIG, width=12, num_heads=4, feed_forward_width=7, max_positions=9),
    ],
    ids=["small", "one head", "scanned"],
)
def test_hidden_states_pooled_outputs_and_all_gradients_are_those_of_transformers(config):
    theirs, (tokens, segments, mask) = rival(config), batch()
    params = from_huggingface(tensors_of(theirs), config, VOCABULARY).params
    torch_inputs = [torch.from_numpy(np.array(a)).long() for a in (tokens, mask, segments)]
    found = theirs(*torch_inputs, output_hidden_states=True, output_attentions=True)
    generator = np.random.default_rng(1)
    weights = generator.normal(size=found.last_hidden_state.shape).astype(np.float32) * np.asarray(mask)[:, :, None]
    pooled_weights = generator.normal(size=found.pooler_output.shape).astype(np.float32)
    total = (found.last_hidden_state * torch.from_numpy(weights)).sum()
    (total + (found.pooler_output * torch.from_numpy(pooled_weights)).sum()).backward()
    gradients = from_huggingface(
        {name: parameter.grad.numpy() for name, parameter in theirs.named_parameters()}, config, VOCABULARY
    ).params

    model = Bert(config, VOCABULARY)

    def loss(params):
        encoding = model.apply({"params": params}, tokens, segments, mask)
        return (encoding.hidden * weights).sum() + (encoding.pooled * pooled_weights).sum(), encoding

    (_, encoding), ours = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    here = np.asarray(mask)
    np.testing.assert_allclose(encoding.pooled, found.pooler_output.detach().numpy(), atol=1e-4)
    for layer, state in zip(encoding.layers, found.hidden_states, strict=True):
        np.testing.assert_allclose(np.asarray(layer)[here], state.detach().numpy()[here], atol=1e-4)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4 * max(1.0, float(np.abs(b).max()))), ours, gradients
    )

    maps = jax.device_get(jax.jit(model.attention_maps)(params, tokens, segments, mask))
    for layer, expected in zip(maps["blocks"], found.attentions, strict=True):
        np.testing.assert_allclose(layer, expected.detach().numpy(), atol=1e-4)


def test_pretraining_heads_are_those_of_transformers():
    theirs, (tokens, segments, mask) = rival(kind=transformers.BertForPreTraining), batch()
    with torch.no_grad():
        expected = theirs(*[torch.from_numpy(np.array(a)).long() for a in (tokens, mask, segments)])
    params, heads = from_huggingface(tensors_of(theirs), CONFIG, VOCABULARY)
    encoding = encode(Bert(CONFIG, VOCABULARY), params, tokens, segments, mask)
    rows = encoding.hidden.reshape(-1, CONFIG.width)
    score = jax.jit(PretrainingHeads(VOCABULARY).apply)
    x, bias, follows = jax.device_get(score({"params": heads}, rows, encoding.pooled))
    logits = x @ params["tokens"]["embedding"].T + bias
    np.testing.assert_allclose(follows, expected.seq_relationship_logits.numpy(), atol=1e-4)
    flat = np.asarray(mask).reshape(-1)
    np.testing.assert_allclose(
        logits[flat], expected.prediction_logits.reshape(-1, VOCABULARY).numpy()[flat], atol=1e-4
    )


@pytest.mark.thorough
def test_padding_changes_nothing_and_texts_do_not_see_each_other():
    model, params, (tokens, segments, mask) = Bert(CONFIG, VOCABULARY), initial(), batch()
    expected = encode(model, params, tokens, segments, mask)
    garbage = np.where(mask, tokens, (tokens + 7) % VOCABULARY)
    found = encode(model, params, garbage, np.where(mask, segments, 1 - segments), mask)
    np.testing.assert_allclose(found.hidden[mask], expected.hidden[mask], atol=1e-6)
    np.testing.assert_allclose(found.pooled, expected.pooled, atol=1e-6)
    count = int(mask[0].sum())
    assert count < LENGTH
    alone = encode(model, params, tokens[:1, :count], segments[:1, :count], mask[:1, :count])
    np.testing.assert_allclose(alone.hidden[0], expected.hidden[0, :count], atol=1e-5)


MODERN = {"positions": "rotary", "local_layers": (1,), "local_window": 4, "pre_norm": True, "first_norm": False}


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    "changes",
    [{}, {"padding_id": 1}, {"positions": "sinusoidal"}, MODERN, {"use_pooler": True, "pooler_input": "each"}],
    ids=str,
)
def test_texts_that_share_a_row_have_the_vectors_that_each_has_alone(changes):
    config = dataclasses.replace(CONFIG, **changes)
    model, params = Bert(config, VOCABULARY), initial(config)
    tokens = np.array([[5, 9, 7, 3, 8, 1, 2, 1, 4, 6, 0, 0]])
    counts = (4, 1, 5)
    texts = np.concatenate([np.repeat([1, 2, 3], counts), [0, 0]])[None]
    segments = np.array([[0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 0, 0]])
    found = encode(model, params, tokens, segments, texts=texts)
    assert found.pooled is None
    for stop, count in zip(np.cumsum(counts), counts, strict=True):
        own = np.s_[:, stop - count : stop]
        alone = encode(model, params, tokens[own], segments[own])
        np.testing.assert_allclose(found.hidden[own], alone.hidden, atol=1e-5)


@pytest.mark.thorough
def test_segments_and_positions_count():
    model, params, (tokens, segments, _) = Bert(CONFIG, VOCABULARY), initial(), batch()
    plain = encode(model, params, tokens)
    zeros = encode(model, params, tokens, np.zeros_like(segments))
    chex.assert_trees_all_equal(plain, zeros)
    assert np.abs(encode(model, params, tokens, segments).hidden - plain.hidden).max() > 1e-3
    turned = encode(model, params, tokens[:, ::-1])
    assert np.abs(turned.hidden[:, ::-1] - plain.hidden).max() > 1e-3


@pytest.mark.thorough
@pytest.mark.parametrize(
    "changes", [{"scan_layers": True}, {"remat": True}, {"scan_layers": True, "remat": True}], ids=str
)
def test_looping_and_recomputing_change_neither_function_nor_gradient_nor_dropout(changes):
    params, (tokens, segments, mask) = initial(), batch()

    def value_and_gradient(compute):
        model = Bert(CONFIG, VOCABULARY, compute)

        def loss(params):
            rngs = {"dropout": jax.random.key(3)}
            encoding = model.apply({"params": params}, tokens, segments, mask, deterministic=False, rngs=rngs)
            return jnp.square(encoding.hidden).sum() + encoding.pooled.sum()

        return jax.jit(jax.value_and_grad(loss))(params)

    found, expected = value_and_gradient(TransformerCompute(**changes)), value_and_gradient(TransformerCompute())
    chex.assert_trees_all_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.thorough
def test_dropout_is_for_training_and_follows_the_key():
    model, params, (tokens, _, _) = Bert(CONFIG, VOCABULARY), initial(), batch()

    def hidden(seed):
        return encode(model, params, tokens, deterministic=False, rngs={"dropout": jax.random.key(seed)}).hidden

    assert (hidden(0) == hidden(0)).all()
    assert (hidden(0) != hidden(1)).any()
    assert (encode(model, params, tokens).hidden != hidden(0)).any()


@pytest.mark.thorough
def test_variants_are_what_they_say():
    tokens, segments, mask = batch()
    config = dataclasses.replace(CONFIG, positions="sinusoidal", pre_norm=True, use_pooler=False)
    norm = {"scale": np.ones(8, np.float32), "bias": np.zeros(8, np.float32)}
    params = initial(config) | {"final_norm": norm}
    assert "positions" not in params
    assert "pooler" not in params
    encoding = encode(Bert(config, VOCABULARY), params, tokens, segments, mask)
    assert encoding.pooled is None
    # Normalised once, at the end: what comes out has mean 0 and variance 1, what the last block gives has not.
    np.testing.assert_allclose(encoding.hidden.var(axis=-1), 1.0, rtol=1e-3)
    assert np.abs(encoding.layers[-1].var(axis=-1) - 1.0).max() > 0.01
    table = jax.jit(sinusoidal_positions, static_argnums=(0, 1))(12, 8)
    learned = dataclasses.replace(config, positions="learned")
    same = encode(Bert(learned, VOCABULARY), params | {"positions": table}, tokens, segments, mask)
    chex.assert_trees_all_close(same, encoding, atol=1e-6)


MODERN = dataclasses.replace(
    CONFIG,
    **{"positions": "rotary", "pre_norm": True, "first_norm": False, "gated": True, "use_bias": False},
    **{"num_segments": 0, "local_layers": (0, 1), "local_window": 2, "pooler_norm": True, "pooler_input": "each"},
)


@pytest.mark.thorough
def test_local_layers_see_their_window_alone_and_each_token_has_the_layer_of_the_pooler():
    model, (tokens, _, _) = Bert(MODERN, VOCABULARY), batch()
    params = random_parameters(model, np.zeros((1, 1), np.int32), spread=0.5)
    plain = encode(model, params, tokens)
    assert plain.pooled is None
    changed = tokens.copy()
    changed[:, -1] = 1 + tokens[:, -1] % (VOCABULARY - 1)
    moved = np.abs(encode(model, params, changed).hidden - plain.hidden).max(axis=(0, 2))
    assert moved[: LENGTH - 3].max() == 0.0  # two layers, each of which sees one token on both sides
    assert moved[LENGTH - 3 :].min() > 1e-4
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        names = tuple(key.key for key in path)
        assert len(MODERN.parameter(names).axes) == leaf.ndim
        assert not MODERN.unread_by_tokens(names)
    assert dataclasses.replace(MODERN, pooler_input="cls").unread_by_tokens(("pooler_norm", "scale"))


@pytest.mark.thorough
def test_short_products_are_near_the_exact_ones():
    params, (tokens, segments, mask) = initial(), batch()
    exact = encode(Bert(CONFIG, VOCABULARY), params, tokens, segments, mask)
    for changes in ({"matmul_dtype": "bfloat16"}, {"dtype": "bfloat16"}):
        model = Bert(CONFIG, VOCABULARY, TransformerCompute(**changes))
        short = encode(model, params, tokens, segments, mask)
        assert short.hidden.dtype == changes.get("dtype", "float32")
        np.testing.assert_allclose(short.hidden.astype(np.float32)[mask], exact.hidden[mask], atol=0.1)


def test_a_text_longer_than_the_positions_is_refused_with_both_lengths():
    with pytest.raises(ValueError, match="the text has 13 tokens, but the model has only 12 positions"):
        Bert(CONFIG, VOCABULARY).apply({"params": initial()}, np.zeros((1, 13), np.int32))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_layers": 0}, "model.encoder.num_layers must be at least 1, got 0"),
        ({"num_heads": 3}, "model.encoder.num_heads must divide model.encoder.width, got 3 heads for width 8"),
        ({"feed_forward_width": 0}, "model.encoder.feed_forward_width must be at least 1, got 0"),
        ({"rotary_base": 5.0}, "rotary_base applies only to model.encoder.positions rotary"),
        ({"local_window": 5}, "local_window applies only to an encoder with local layers"),
        ({"local_layers": (2,)}, r"model.encoder.local_layers must be below model.encoder.num_layers, 2, got \(2,\)"),
        ({"first_norm": False}, "first_norm applies only to model.encoder.pre_norm True"),
        ({"positions": "rotary", "width": 6}, "must be even for rotary positions, got 3"),
        ({"positions": "rotary", "padding_id": 1}, "padding_id applies only to embeddings of positions"),
        ({"dropout_rate": 1.0}, r"model.encoder.dropout_rate must be in \[0, 1\), got 1.0"),
        (
            {"positions": "sinusoidal", "width": 9, "num_heads": 3},
            "model.encoder.width must be even .*, got 9",
        ),
        ({"epsilon": 0.0}, r"model.encoder.epsilon must be in \(0, 1\), got 0.0"),
    ],
)
def test_config_that_cannot_be_is_refused_with_field_and_value(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **changes)


def test_export_is_for_what_transformers_has():
    for changes in ({"positions": "sinusoidal"}, {"pre_norm": True}):
        config = dataclasses.replace(CONFIG, **changes)
        with pytest.raises(ValueError, match=f"Transformers' BERT does not support {next(iter(changes))}"):
            to_huggingface(initial(config), config, VOCABULARY)
