import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import torch
from flax.traverse_util import flatten_dict

from jaxnlp.models import parameter_shapes
from jaxnlp.models.encoder_decoder import EncoderDecoderConfig
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.saving.serialization import ConfigError
from tests.processors import translating

SOURCE_SIZE, TARGET_SIZE, LAYERS, HEADS, WIDTH = 11, 13, 2, 2, 8
CONFIG = EncoderDecoderConfig(num_layers=LAYERS, num_heads=HEADS, width=WIDTH, context_length=7, dropout_rate=0.3)
generator = np.random.default_rng(0)
SOURCE = generator.integers(1, SOURCE_SIZE, (3, 6))
INPUTS = generator.integers(1, TARGET_SIZE, (3, 5))
MASK = np.arange(6)[None] < np.array([6, 4, 1])[:, None]
UPSTREAM = generator.normal(size=(3, 5, TARGET_SIZE)).astype(np.float32)


@functools.cache
def model_of(**changes):
    """A model, and parameters of ordinary size."""
    config = dataclasses.replace(CONFIG, **changes)
    size = TARGET_SIZE if config.embeddings == "shared" else SOURCE_SIZE
    model = config.build(translating(size, TARGET_SIZE))
    shapes = parameter_shapes(model, SOURCE, INPUTS)
    draw = np.random.default_rng(1)
    return model, jax.device_put(jax.tree.map(lambda leaf: np.float32(0.4 * draw.normal(size=leaf.shape)), shapes))


@functools.lru_cache
def forward(model, **options):
    return jax.jit(functools.partial(model.apply, **options))


def logits(model, params, source=SOURCE, inputs=INPUTS, mask=MASK, key=None, **options):
    rngs = {} if key is None else {"rngs": {"dropout": key}}
    return np.asarray(forward(model, **options)({"params": params}, source, inputs, mask, **rngs))


def pytorch_block(block):
    """One block's parameters, or their gradients, under PyTorch's names for a layer."""
    state, names = {}, {"attention": "self_attn", "cross_attention": "multihead_attn"}
    for ours, theirs in names.items():
        if ours in block:
            part = block[ours]
            joined = [part[name] for name in (("qkv",) if "qkv" in part else ("q", "kv"))]
            state[f"{theirs}.in_proj_weight"] = np.concatenate([p["kernel"].reshape(WIDTH, -1).T for p in joined])
            state[f"{theirs}.in_proj_bias"] = np.concatenate([p["bias"].reshape(-1) for p in joined])
            state[f"{theirs}.out_proj.weight"] = part["out"]["kernel"].T
            state[f"{theirs}.out_proj.bias"] = part["out"]["bias"]
    for number, name in (("1", "up"), ("2", "down")):
        state[f"linear{number}.weight"] = block["feed_forward"][name]["kernel"].T
        state[f"linear{number}.bias"] = block["feed_forward"][name]["bias"]
    norms = ["attention_norm", *(["cross_attention_norm"] if "cross_attention" in block else []), "feed_forward_norm"]
    for number, name in enumerate(norms, 1):
        state |= {f"norm{number}.weight": block[name]["scale"], f"norm{number}.bias": block[name]["bias"]}
    return state


def pytorch_state(params):
    """Our parameters, or their gradients, under the names of `PyTorchModel`."""
    params = jax.device_get(params)
    state = {name: params[name]["embedding"] for name in ("source_tokens", "target_tokens")}
    state |= {name: params[name] for name in ("source_positions", "target_positions")}
    state["head"] = params["head"]["kernel"]
    for side in ("encoder", "decoder"):
        for number in range(LAYERS):
            block = jax.tree.map(lambda x, number=number: x[number], params[side]["blocks"])
            layer = f"transformer.{side}.layers.{number}"
            state |= {f"{layer}.{name}": value for name, value in pytorch_block(block).items()}
        if "final_norm" in params[side]:
            norm = params[side]["final_norm"]
            state |= {f"transformer.{side}.norm.weight": norm["scale"], f"transformer.{side}.norm.bias": norm["bias"]}
    return {name: torch.tensor(np.array(value)) for name, value in state.items()}


class PyTorchModel(torch.nn.Module):
    """PyTorch's Transformer with separate embeddings, learned positions and an output layer."""

    def __init__(self, norm, state):
        super().__init__()
        options = {"dropout": 0.0, "activation": "relu", "norm_first": norm == "pre", "batch_first": True}
        encoder_layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, **options)
        final = torch.nn.LayerNorm(WIDTH) if norm == "pre" else None  # the published model has none
        encoder = torch.nn.TransformerEncoder(encoder_layer, LAYERS, final, enable_nested_tensor=False)
        self.transformer = torch.nn.Transformer(
            WIDTH, HEADS, LAYERS, LAYERS, 4 * WIDTH, custom_encoder=encoder, **options
        )
        if norm == "post":
            self.transformer.decoder.norm = None
        for name in ("source_tokens", "target_tokens", "source_positions", "target_positions", "head"):
            setattr(self, name, torch.nn.Parameter(torch.empty_like(state[name])))
        self.load_state_dict(state)

    def forward(self, source, inputs, mask):
        padding = torch.tensor(~mask)
        hidden = self.transformer(
            self.source_tokens[source] + self.source_positions[None, : source.shape[1]],
            self.target_tokens[inputs] + self.target_positions[None, : inputs.shape[1]],
            tgt_mask=torch.tensor(~np.tri(inputs.shape[1], dtype=bool)),
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return hidden @ self.head


PYTORCH_SHAPE = {"positions": "learned", "embeddings": "separate", "scale_embeddings": False}


@pytest.mark.sweep(1)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_equals_the_transformer_of_pytorch_in_values_and_gradients(norm):
    model, params = model_of(norm=norm, **PYTORCH_SHAPE)
    theirs = PyTorchModel(norm, pytorch_state(params))
    expected = theirs(SOURCE, INPUTS, MASK)
    (expected * torch.tensor(UPSTREAM)).sum().backward()

    @jax.jit
    @functools.partial(jax.grad, has_aux=True)
    def gradient_and_logits(params):
        ours = model.apply({"params": params}, SOURCE, INPUTS, MASK)
        return (ours * UPSTREAM).sum(), ours

    gradient, ours = jax.device_get(gradient_and_logits(params))
    np.testing.assert_allclose(ours, expected.detach().numpy(), atol=5e-5)
    found = pytorch_state(gradient)
    parameters = dict(theirs.named_parameters())
    assert found.keys() == parameters.keys()
    for name, parameter in parameters.items():
        assert parameter.grad.abs().max() > 1e-3, name
        np.testing.assert_allclose(found[name], parameter.grad, rtol=1e-3, atol=1e-3, err_msg=name)


@pytest.mark.thorough
def test_alignments_are_the_mean_weights_of_the_last_cross_attention_in_pytorch():
    model, params = model_of(**PYTORCH_SHAPE)
    theirs, seen = PyTorchModel("pre", pytorch_state(params)), []
    last = theirs.transformer.decoder.layers[-1].multihead_attn
    hook = last.register_forward_pre_hook(lambda _, inputs: seen.append(inputs))
    theirs(SOURCE, INPUTS, MASK)
    hook.remove()
    (arguments,) = seen
    _, expected = last(*arguments, key_padding_mask=torch.tensor(~MASK), average_attn_weights=True)
    found = np.array(jax.jit(model.alignment)(params, SOURCE, INPUTS, MASK))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected.detach().numpy(), atol=1e-5)
    np.testing.assert_allclose(found.sum(axis=-1), 1.0, rtol=1e-5)
    assert not found[np.broadcast_to(~MASK[:, None], found.shape)].any()
    assert found[0].std(axis=-1).min() > 0.01  # no uniform weights


def test_attention_maps_are_those_of_every_layer_and_head_in_pytorch():
    model, params = model_of(**PYTORCH_SHAPE)
    transformer = (theirs := PyTorchModel("pre", pytorch_state(params))).transformer
    modules = {"encoder": [layer.self_attn for layer in transformer.encoder.layers]}
    modules["decoder"] = [layer.self_attn for layer in transformer.decoder.layers]
    modules["cross"] = [layer.multihead_attn for layer in transformer.decoder.layers]
    seen = {}
    for layers in modules.values():
        for layer in layers:
            layer.register_forward_pre_hook(lambda layer, inputs: seen.setdefault(layer, inputs))
    theirs(SOURCE, INPUTS, np.ones_like(MASK))
    hidden = {"decoder": torch.tensor(~np.tri(INPUTS.shape[1], dtype=bool))}
    found = jax.jit(model.attention_maps)(params, SOURCE, INPUTS)
    assert found.keys() == modules.keys()
    for name, layers in modules.items():
        expected = [
            layer(*seen[layer], attn_mask=hidden.get(name), average_attn_weights=False)[1].detach().numpy()
            for layer in layers
        ]
        assert len(expected) == LAYERS
        np.testing.assert_allclose(found[name], np.stack(expected), atol=1e-5, err_msg=name)


T5 = {
    **{"positions": "shared_relative_bias", "normalization": "rms", "use_bias": False, "gated": True, "head_width": 3},
    **{"num_buckets": 6, "max_distance": 5, "embeddings": "shared", "scale_embeddings": False},
    **{"scale_attention": False, "scale_logits": True, "epsilon": 1e-6},
}
BART = {
    **{"positions": "learned", "position_offset": 2, "norm": "post", "embedding_norm": True, "activation": "gelu"},
    **{"embeddings": "shared", "output_bias": True},
}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "post", "embeddings": "shared"},
        {"positions": "learned", "embeddings": "separate", "scale_embeddings": False},
        {"positions": "rotary", "compute": TransformerCompute(scan_layers=True)},
        {"positions": "relative_bias"},
        {"positions": "relative_vectors"},
        T5 | {"num_decoder_layers": 3},
        BART,
    ],
    ids=lambda changes: " ".join(map(str, changes)) or "defaults",
)
def test_decoding_with_a_cache_equals_the_whole_forward_pass_at_every_length(changes):
    model, params = model_of(**changes)
    expected = logits(model, params)
    cache = jax.jit(model.initial_cache)(params, SOURCE, MASK)
    decoding = model.decoding_params(params)
    read = jax.jit(lambda tokens, cache: model.apply({"params": decoding}, tokens, cache, method="read"))
    for position in range(INPUTS.shape[1]):
        found, cache = read(INPUTS[:, position : position + 1], cache)
        np.testing.assert_allclose(np.asarray(found)[:, 0], expected[:, position], atol=2e-5)
    assert int(cache.length) == INPUTS.shape[1]


@pytest.mark.thorough
def test_a_prefix_may_be_read_at_once_and_padded():
    model, params = model_of()
    cache = jax.jit(model.initial_cache)(model.decoding_params(params), SOURCE, MASK)
    variables, read = {"params": model.decoding_params(params)}, forward(model, method="read")
    _, cache = read(variables, INPUTS[:, :4], cache, 2)
    found, _ = read(variables, INPUTS[:, 2:], cache)
    np.testing.assert_allclose(found, logits(model, params)[:, 2:], atol=2e-5)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "positions", ["sinusoidal", "rotary", "relative_bias", "shared_relative_bias", "relative_vectors"]
)
def test_later_targets_and_padded_sources_change_nothing(positions):
    model, params = model_of(positions=positions)
    before = logits(model, params)
    later, padded = INPUTS.copy(), np.where(MASK, SOURCE, 3)
    later[:, 3:] = 1
    np.testing.assert_allclose(logits(model, params, inputs=later)[:, :3], before[:, :3], atol=1e-5)
    np.testing.assert_allclose(logits(model, params, source=padded), before, atol=1e-5)
    longer = np.pad(SOURCE[:, :4], [(0, 0), (0, 3)])
    found = logits(model, params, source=longer, mask=np.pad(MASK[:, :4], [(0, 0), (0, 3)]))
    np.testing.assert_allclose(found[1:], before[1:], atol=1e-5)


@pytest.mark.thorough
def test_each_target_position_sees_the_source_and_the_target_before_it():
    model, params = model_of()
    before = logits(model, params)
    other = SOURCE.copy()
    other[:, 0] = SOURCE[:, 0] % (SOURCE_SIZE - 1) + 1
    assert (np.abs(logits(model, params, source=other) - before).max(axis=-1) > 1e-4).all()
    other = INPUTS.copy()
    other[:, 0] = INPUTS[:, 0] % (TARGET_SIZE - 1) + 1
    assert (np.abs(logits(model, params, inputs=other) - before).max(axis=-1) > 1e-4).all()


@pytest.mark.thorough
def test_the_hidden_state_times_the_output_layer_is_the_logits():
    for embeddings in ("separate", "tied", "shared", "shared_inputs"):
        model, params = model_of(embeddings=embeddings, num_layers=1, scale_logits=embeddings == "tied")
        w, b = model.output_layer(params)
        assert b is None
        hidden = logits(model, params, return_hidden=True)
        np.testing.assert_allclose(np.asarray(hidden) @ np.asarray(w), logits(model, params), atol=1e-4)


@pytest.mark.thorough
def test_dropout_acts_only_in_training():
    model, params = model_of(num_layers=1)
    without, _ = model_of(num_layers=1, dropout_rate=0.0)
    expected = logits(without, params, deterministic=False, key=jax.random.key(0))
    np.testing.assert_allclose(logits(model, params), expected, atol=1e-6)
    first, second = (logits(model, params, deterministic=False, key=jax.random.key(k)) for k in (0, 1))
    for found, other in ((first, expected), (second, expected), (first, second)):
        assert (np.abs(found - other).max(axis=-1) > 1e-3).all()


@pytest.mark.sweep(1)
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "relative_bias", "relative_vectors"])
@pytest.mark.parametrize("embeddings", ["separate", "tied", "shared"])
def test_every_parameter_has_its_axes(norm, positions, embeddings):
    model, params = model_of(norm=norm, positions=positions, embeddings=embeddings)
    found = {path: model.config.parameter(path) for path in flatten_dict(params)}
    assert {path: len(p.axes) for path, p in found.items()} == {p: x.ndim for p, x in flatten_dict(params).items()}
    assert [path[0] for path, parameter in found.items() if parameter.head] == ["head"] * (embeddings == "separate")
    leaf = {"separate": ("head", "kernel"), "tied": ("target_tokens", "embedding"), "shared": ("tokens", "embedding")}
    expected = flatten_dict(params)[leaf[embeddings]]
    output, bias = model.output_layer(params)
    assert bias is None
    np.testing.assert_array_equal(output, expected if embeddings == "separate" else expected.T)


@pytest.mark.parametrize("changes", [T5, T5 | {"normalization": "layer", "embeddings": "shared_inputs"}])
def test_every_parameter_of_a_t5_has_its_axes_and_layers_share_the_bias(changes):
    model, params = model_of(**changes)
    found = {path: model.config.parameter(path) for path in flatten_dict(params)}
    assert {path: len(p.axes) for path, p in found.items()} == {p: x.ndim for p, x in flatten_dict(params).items()}
    assert not any(path[-1] == "bias" for path in found)
    assert {path for path in found if path[-1] == "relative_bias"} == {
        ("encoder", "relative_bias"),
        ("decoder", "relative_bias"),
    }
    assert ("tokens", "embedding") in found
    assert (("head", "kernel") in found) == (changes["embeddings"] == "shared_inputs")


@pytest.mark.thorough
@pytest.mark.parametrize("changes", [BART, BART | {"use_bias": False, "embeddings": "shared_inputs"}])
def test_every_parameter_of_a_bart_has_its_axes_and_positions_have_rows_before_the_first(changes):
    model, params = model_of(**changes)
    found = {path: model.config.parameter(path) for path in flatten_dict(params)}
    assert {path: len(p.axes) for path, p in found.items()} == {p: x.ndim for p, x in flatten_dict(params).items()}
    assert found["output_bias",].head
    assert params["target_positions"].shape == (2 + CONFIG.context_length, WIDTH)
    assert (("source_norm", "bias") in found) == model.config.use_bias
    w, b = model.output_layer(params)
    hidden = forward(model, return_hidden=True)({"params": params}, SOURCE, INPUTS, MASK)
    np.testing.assert_allclose(np.asarray(hidden @ w) + np.asarray(b), logits(model, params), atol=1e-5)


@pytest.mark.thorough
def test_more_embeddings_than_tokens_are_built_as_asked():
    model, params = model_of(padded_vocabulary_size=20)
    assert params["source_tokens"]["embedding"].shape == params["target_tokens"]["embedding"].shape == (20, WIDTH)
    assert logits(model, params).shape == (3, 5, 20)


def test_fewer_embeddings_than_tokens_are_refused():
    with pytest.raises(
        ConfigError, match=r"model\.padded_vocabulary_size must be at least the tokenizer's \d+ tokens, got 3"
    ):
        model_of(padded_vocabulary_size=3)


@pytest.mark.thorough
def test_other_heads_than_the_width_and_logits_that_are_scaled():
    model, params = model_of(**T5)
    other, _ = model_of(**T5 | {"scale_logits": False})
    np.testing.assert_allclose(logits(model, params) * WIDTH**0.5, logits(other, params), rtol=1e-5, atol=1e-6)
    assert params["encoder"]["blocks"]["attention"]["qkv"]["kernel"].shape == (LAYERS, WIDTH, 3, HEADS, 3)
    assert params["decoder"]["blocks"]["cross_attention"]["out"]["kernel"].shape == (LAYERS, HEADS * 3, WIDTH)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("norm", "embeddings", "more"), [("pre", "separate", 0.1), ("post", "separate", 0.1), ("pre", "shared", 3.0)]
)
def test_the_initial_loss_is_near_that_of_a_uniform_guess(norm, embeddings, more):
    """Where embeddings are the output layer, the token that was read has a high score at first."""
    config = dataclasses.replace(CONFIG, norm=norm, width=32, num_layers=1, embeddings=embeddings)
    model = config.build(translating(TARGET_SIZE if embeddings == "shared" else SOURCE_SIZE, TARGET_SIZE))
    params = jax.jit(model.init)(jax.random.key(0), SOURCE, INPUTS)["params"]
    losses = -scipy.special.log_softmax(logits(model, params), axis=-1)
    assert np.log(TARGET_SIZE) - 0.1 < losses.mean() < np.log(TARGET_SIZE) + more


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_layers": 0}, "model.num_layers must be at least 1, got 0"),
        ({"feed_forward_width": 0}, "model.feed_forward_width must be at least 1, got 0"),
        ({"num_heads": 3}, "model.num_heads must divide model.width, got 3 heads for width 8"),
        ({"width": 7, "num_heads": 1}, "model.width must be even for sinusoidal positions, got 7"),
        ({"width": 6, "positions": "rotary"}, "model.width / model.num_heads must be even for rotary positions, got 3"),
        ({"dropout_rate": 1.0}, "model.dropout_rate must be in [0, 1), got 1.0"),
        ({"position_offset": 2}, "model.position_offset applies only to learned positions (model.positions)"),
        ({"positions": "rotary", "sines_first": True}, "model.sines_first applies only to sinusoidal positions"),
        ({"num_buckets": 8}, "model.num_buckets applies only to a relative bias (model.positions)"),
    ],
)
def test_shapes_that_cannot_be_are_refused(fields, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        dataclasses.replace(CONFIG, **fields)


def test_one_table_needs_one_vocabulary():
    with pytest.raises(ValueError, match=r"model\.embeddings shared needs one vocabulary"):
        dataclasses.replace(CONFIG, embeddings="shared").check(translating(SOURCE_SIZE, TARGET_SIZE))


@pytest.mark.thorough
def test_texts_beyond_the_context_are_refused_with_both_lengths():
    model, params = model_of()
    long = jnp.ones((3, 8), jnp.int32)
    message = r"expected a {} of at most model.context_length, 7 tokens, got {} \(3, 8\)"
    with pytest.raises(ValueError, match=message.format("source", "source")):
        logits(model, params, source=long, mask=None)
    with pytest.raises(ValueError, match=message.format("target", "target")):
        logits(model, params, inputs=long)
