import dataclasses
import functools
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import torch
from flax.traverse_util import flatten_dict

from jaxnlp.models import parameter_shapes
from jaxnlp.models.attention_lstm import AttentionLSTMConfig
from tests.processors import translating

SOURCE_SIZE, TARGET_SIZE, EMBEDDING, WIDTH = 11, 13, 5, 6
CONFIG = AttentionLSTMConfig(embedding_width=EMBEDDING, width=WIDTH, dropout_rate=0.3)
generator = np.random.default_rng(0)
SOURCE = generator.integers(1, SOURCE_SIZE, (3, 6))
INPUTS = generator.integers(1, TARGET_SIZE, (3, 5))
LENGTHS = np.array([6, 4, 1])
MASK = np.arange(6)[None] < LENGTHS[:, None]
UPSTREAM = generator.normal(size=(3, 5, TARGET_SIZE)).astype(np.float32)
VARIANTS = {
    "multiplicative": {},
    "dot": {"attention": "dot", "encoder_width": WIDTH // 2},
    "additive": {"attention": "additive", "encoder_width": 4},
    "tied, no convolution": {"embeddings": "tied", "embedding_width": WIDTH, "use_convolution": False},
    "shared, two layers": {"embeddings": "shared", "embedding_width": WIDTH, "encoder_layers": 2},
}


@functools.cache
def model_of(**changes):
    """A model, and parameters of ordinary size."""
    config = dataclasses.replace(CONFIG, **changes)
    size = TARGET_SIZE if config.embeddings == "shared" else SOURCE_SIZE
    model = config.build(translating(size, TARGET_SIZE))
    shapes = parameter_shapes(model, SOURCE, INPUTS)
    draw = np.random.default_rng(1)
    return model, jax.tree.map(lambda leaf: np.float32(0.5 * draw.normal(size=leaf.shape)), shapes)


@functools.lru_cache
def forward(model, **options):
    return jax.jit(functools.partial(model.apply, **options))


def logits(model, params, source=SOURCE, inputs=INPUTS, mask=MASK, key=None, **options):
    rngs = {} if key is None else {"rngs": {"dropout": key}}
    return np.asarray(forward(model, **options)({"params": params}, source, inputs, mask, **rngs))


class Translator(torch.nn.Module):
    """The assignment's model, step by step, with three ways to score."""

    def __init__(self, config):
        super().__init__()
        self.config, width, encoder = config, config.width, config.direction_width
        size = TARGET_SIZE if config.embeddings == "shared" else SOURCE_SIZE
        self.source = torch.nn.Embedding(size, config.embedding_width)
        self.target = torch.nn.Embedding(TARGET_SIZE, config.embedding_width)
        if config.use_convolution:
            size = config.embedding_width
            self.convolution = torch.nn.Conv1d(size, size, kernel_size=2, padding="same")
        self.encoder = torch.nn.LSTM(
            config.embedding_width, encoder, num_layers=config.encoder_layers, bidirectional=True
        )
        self.decoder = torch.nn.LSTMCell(config.embedding_width + width, width)
        self.initial_hidden = torch.nn.Linear(2 * encoder, width, bias=False)
        self.initial_cell = torch.nn.Linear(2 * encoder, width, bias=False)
        self.keys = torch.nn.Linear(2 * encoder, width, bias=config.attention == "additive")
        self.queries = torch.nn.Linear(width, width, bias=False)
        self.vector = torch.nn.Linear(width, 1, bias=False)
        self.combined = torch.nn.Linear(2 * encoder + width, width, bias=False)
        self.vocabulary = torch.nn.Linear(width, TARGET_SIZE, bias=False)

    def forward(self, source, inputs, lengths, dropout=None):
        """Logits [B, T, V], and o [B, T, K] times the dropout [B, T, K]."""
        mask = torch.arange(source.shape[1])[None] < lengths[:, None]
        x = self.source(source) * mask[:, :, None]
        if self.config.use_convolution:
            x = self.convolution(x.transpose(1, 2)).transpose(1, 2)
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        outputs, (h, c) = self.encoder(packed)
        memory, _ = torch.nn.utils.rnn.pad_packed_sequence(outputs, batch_first=True)
        h, c = (
            part(torch.cat([s[-2], s[-1]], dim=1)) for part, s in ((self.initial_hidden, h), (self.initial_cell, c))
        )
        o, outputs = torch.zeros_like(h), []
        for position in range(inputs.shape[1]):
            h, c = self.decoder(torch.cat([self.target(inputs[:, position]), o], dim=1), (h, c))
            if self.config.attention == "dot":
                scores = (memory @ h[:, :, None])[:, :, 0]
            elif self.config.attention == "multiplicative":
                scores = (self.keys(memory) @ h[:, :, None])[:, :, 0]
            else:
                scores = self.vector(torch.tanh(self.keys(memory) + self.queries(h)[:, None]))[:, :, 0]
            weights = scores.masked_fill(~mask, -float("inf")).softmax(dim=1)
            context = (weights[:, None] @ memory)[:, 0]
            o = torch.tanh(self.combined(torch.cat([context, h], dim=1)))
            if dropout is not None:
                o = o * dropout[:, position]
            outputs.append(o)
        hidden = torch.stack(outputs, dim=1)
        return self.vocabulary(hidden), hidden


def pytorch_state(config, params):
    """Our parameters, or their gradients, under PyTorch's names; biases that PyTorch has twice are None there."""
    p = {"/".join(path): np.array(value) for path, value in flatten_dict(params).items()}

    def gates(array):
        return array.reshape(array.shape[0], -1).T

    table = {"separate": "target_tokens", "tied": "target_tokens", "shared": "tokens"}[config.embeddings]
    tied = config.embeddings != "separate"
    state = {
        "source.weight": p["tokens/embedding" if config.embeddings == "shared" else "source_tokens/embedding"],
        "target.weight": p[f"{table}/embedding"],
        "decoder.weight_ih": np.concatenate(
            [gates(p["decoder_input/kernel"]), gates(p["decoder_kernel"][: config.width])], axis=1
        ),
        "decoder.weight_hh": gates(p["decoder_kernel"][config.width :]),
        "decoder.bias_ih": p["decoder_input/bias"].reshape(-1),
        "combined.weight": p["output_kernel"].T,
        "vocabulary.weight": p[f"{table}/embedding"] if tied else p["head_kernel"].T,
        "initial_hidden.weight": p["initial_hidden/kernel"].T,
        "initial_cell.weight": p["initial_cell/kernel"].T,
    }
    if config.use_convolution:
        state["convolution.weight"] = p["convolution/kernel"].transpose(2, 1, 0)
        state["convolution.bias"] = p["convolution/bias"]
    for layer, (direction, suffix) in itertools.product(
        range(config.encoder_layers), (("forward", ""), ("backward", "_reverse"))
    ):
        prefix = f"encoder/layer_{layer}_{direction}"
        state[f"encoder.weight_ih_l{layer}{suffix}"] = gates(p[f"{prefix}/kernel"])
        state[f"encoder.weight_hh_l{layer}{suffix}"] = gates(p[f"{prefix}/recurrent_kernel"])
        state[f"encoder.bias_ih_l{layer}{suffix}"] = p[f"{prefix}/bias"].reshape(-1)
    if config.attention != "dot":
        state["keys.weight"] = p["attention_keys/kernel"].T
    if config.attention == "additive":
        state |= {
            "keys.bias": p["attention_keys/bias"],
            "queries.weight": p["attention_queries"].T,
            "vector.weight": p["attention_vector"][None],
        }
    return state


def pytorch_model(config, params):
    """The model in PyTorch, with our parameters."""
    theirs = Translator(config)
    state = {name: torch.tensor(value) for name, value in pytorch_state(config, params).items()}
    zeros = {n: torch.zeros_like(v) for n, v in theirs.state_dict().items() if n not in state and "bias" in n}
    theirs.load_state_dict(state | zeros, strict=False)
    if config.embeddings != "separate":
        theirs.vocabulary.weight = theirs.target.weight
    if config.embeddings == "shared":
        theirs.source.weight = theirs.target.weight
    return theirs


same_padding = pytest.mark.filterwarnings("ignore:Using padding='same'")  # PyTorch warns that it copies


@pytest.mark.thorough
@same_padding
@pytest.mark.parametrize("variant", ["multiplicative", "dot", "additive", "tied, no convolution", "shared, two layers"])
def test_equals_the_assignments_model_in_pytorch_in_values_and_gradients(variant):
    model, params = model_of(**VARIANTS[variant])
    theirs = pytorch_model(model.config, params)
    expected, hidden = theirs(torch.tensor(SOURCE), torch.tensor(INPUTS), torch.tensor(LENGTHS))
    np.testing.assert_allclose(logits(model, params), expected.detach().numpy(), atol=2e-5)
    w, b = model.output_layer(params)
    assert b is None
    np.testing.assert_allclose(hidden.detach().numpy() @ w, expected.detach().numpy(), atol=2e-5)

    (expected * torch.tensor(UPSTREAM)).sum().backward()
    gradient = jax.jit(jax.grad(lambda p: (model.apply({"params": p}, SOURCE, INPUTS, MASK) * UPSTREAM).sum()))(params)
    found, compared = pytorch_state(model.config, gradient), set()
    for name, parameter in theirs.named_parameters():
        if name in found:
            np.testing.assert_allclose(found[name], parameter.grad.numpy(), atol=2e-4, err_msg=name)
            compared.add(name)
    # PyTorch lists a parameter that has several names under its first.
    later = {"vocabulary.weight"} | ({"target.weight"} if variant.startswith("shared") else set())
    assert compared >= found.keys() - later


@pytest.mark.sweep(2)
@pytest.mark.parametrize("variant", VARIANTS)
def test_reading_step_by_step_equals_the_whole_forward_pass(variant):
    model, params = model_of(**VARIANTS[variant])
    expected = logits(model, params)
    cache = jax.jit(model.initial_cache)(params, SOURCE, MASK)
    read = jax.jit(lambda tokens, cache, count: model.apply({"params": params}, tokens, cache, count, method="read"))
    for position in range(INPUTS.shape[1]):
        found, cache = read(INPUTS[:, position : position + 1], cache, 1)
        np.testing.assert_allclose(found[:, 0], expected[:, position], atol=2e-5)


@pytest.mark.thorough
def test_a_prefix_may_be_read_at_once_and_padded():
    model, params = model_of()
    cache, read = jax.jit(model.initial_cache)(params, SOURCE, MASK), forward(model, method="read")
    _, cache = read({"params": params}, INPUTS[:, :4], cache, 2)
    found, _ = read({"params": params}, INPUTS[:, 2:], cache)
    np.testing.assert_allclose(found, logits(model, params)[:, 2:], atol=2e-5)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("variant", VARIANTS)
def test_later_targets_and_padded_sources_change_nothing(variant):
    model, params = model_of(**VARIANTS[variant])
    before = logits(model, params)
    later = INPUTS.copy()
    later[:, 3:] = 1
    np.testing.assert_allclose(logits(model, params, inputs=later)[:, :3], before[:, :3], atol=1e-5)
    np.testing.assert_allclose(logits(model, params, source=np.where(MASK, SOURCE, 3)), before, atol=1e-5)
    longer = np.pad(SOURCE, [(0, 0), (0, 3)])
    np.testing.assert_allclose(logits(model, params, longer, mask=np.pad(MASK, [(0, 0), (0, 3)])), before, atol=1e-5)


@pytest.mark.thorough
def test_a_row_with_only_padding_has_finite_scores_and_gradients():
    model, params = model_of()
    mask = MASK & (np.arange(3)[:, None] > 0)
    assert np.isfinite(logits(model, params, mask=mask)).all()
    gradient = jax.jit(jax.grad(lambda p: model.apply({"params": p}, SOURCE, INPUTS, mask).sum()))(params)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_alignments_are_distributions_over_the_real_source():
    model, params = model_of()
    found = np.array(jax.jit(model.alignment)(params, SOURCE, INPUTS, MASK))
    assert found.shape == (3, 5, 6)
    np.testing.assert_allclose(found.sum(axis=-1), 1.0, rtol=1e-5)
    assert not found[np.broadcast_to(~MASK[:, None], found.shape)].any()


@pytest.mark.thorough
def test_other_rows_of_a_cache_keep_the_memory():
    model, params = model_of()
    cache = jax.jit(model.initial_cache)(params, SOURCE, MASK)
    _, cache = forward(model, method="read")({"params": params}, INPUTS[:, :1], cache)
    other = model.reorder(cache, jnp.array([2, 2, 0]))
    assert other.memory is cache.memory
    np.testing.assert_array_equal(other.state.h, cache.state.h[np.array([2, 2, 0])])


@pytest.mark.thorough
def test_the_hidden_state_times_the_output_layer_is_the_logits():
    for variant in VARIANTS.values():
        model, params = model_of(**variant)
        w, b = model.output_layer(params)
        assert b is None
        np.testing.assert_allclose(logits(model, params, return_hidden=True) @ w, logits(model, params), atol=1e-4)


@pytest.mark.thorough
@same_padding
def test_dropout_acts_only_in_training_and_the_next_step_is_fed_the_dropped_output():
    model, params = model_of()
    without, _ = model_of(dropout_rate=0.0)
    expected = logits(without, params, deterministic=False, key=jax.random.key(0))
    np.testing.assert_allclose(logits(model, params), expected, atol=1e-6)
    theirs, masks = pytorch_model(model.config, params), []
    for seed in (0, 1):
        hidden = logits(model, params, deterministic=False, key=jax.random.key(seed), return_hidden=True)
        masks.append(np.array(hidden) != 0.0)
        assert 0.5 < masks[-1].mean() < 0.9
        dropout = torch.tensor(masks[-1] / np.float32(0.7))
        _, expected = theirs(torch.tensor(SOURCE), torch.tensor(INPUTS), torch.tensor(LENGTHS), dropout)
        np.testing.assert_allclose(hidden, expected.detach().numpy(), atol=2e-5)
    assert (masks[0] != masks[1]).any()


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_parameter_has_its_axes(variant):
    model, params = model_of(**VARIANTS[variant])
    found = {path: model.config.parameter(path) for path in flatten_dict(params)}
    assert {path: len(p.axes) for path, p in found.items()} == {p: x.ndim for p, x in flatten_dict(params).items()}
    heads = ["head_kernel"] * (model.config.embeddings == "separate")
    assert [path[0] for path, parameter in found.items() if parameter.head] == heads


@pytest.mark.thorough
def test_the_initial_loss_is_near_that_of_a_uniform_guess():
    model = dataclasses.replace(CONFIG, embedding_width=32, width=32).build(translating(SOURCE_SIZE, TARGET_SIZE))
    params = jax.jit(model.init)(jax.random.key(0), SOURCE, INPUTS)["params"]
    losses = -scipy.special.log_softmax(logits(model, params), axis=-1)
    np.testing.assert_allclose(losses.mean(), np.log(TARGET_SIZE), atol=0.1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"width": 0}, "model.width must be at least 1, got 0"),
        ({"dropout_rate": 1.0}, "model.dropout_rate must be in [0, 1), got 1.0"),
        ({"embeddings": "tied"}, "model.embeddings tied needs model.embedding_width equal to model.width, got 5 and 6"),
        ({"attention": "dot"}, "model.attention dot needs model.width equal to twice model.encoder_width, got 6 and 6"),
        ({"attention": "cosine"}, "model.attention must be one of multiplicative, dot, additive, got 'cosine'"),
    ],
)
def test_shapes_that_cannot_be_are_refused(fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        dataclasses.replace(CONFIG, **fields)


def test_one_table_needs_one_vocabulary():
    config = dataclasses.replace(CONFIG, embeddings="shared", embedding_width=WIDTH)
    with pytest.raises(ValueError, match=r"model\.embeddings shared needs one vocabulary"):
        config.check(translating(SOURCE_SIZE, TARGET_SIZE))
