"""Outputs and gradients of encoder-decoders, ours and those of Transformers, at equal weights."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import torch

from jaxnlp.convert.encoder_decoder_weights import to_huggingface
from jaxnlp.nn.compute import EXACT, TransformerCompute
from jaxnlp.text.translation import TranslationProcessor
from tests.encoder_folders import TEXTS


def arrays_of(batch):
    """The arguments of our model."""
    source, inputs = (batch[name].numpy().astype(np.int32) for name in ("input_ids", "decoder_input_ids"))
    return source, inputs, batch["attention_mask"].numpy().astype(bool)


@functools.partial(jax.jit, static_argnums=0)
def logits_of(model, params, *arrays):
    return model.apply({"params": params}, *arrays)


def built(held, compute=EXACT):
    config = type(held.config)(**{**vars(held.config), "compute": compute})
    return config.build(TranslationProcessor(held.vocabulary.of_sources(), held.vocabulary))


def ours(held, batch, compute=EXACT):
    return np.asarray(logits_of(built(held, compute), held.params, *arrays_of(batch)))


def theirs(model, batch):
    with torch.no_grad():
        return model(**batch).logits.numpy()


def inputs_of(tokenizer, side="right", *, targets, start):
    """What Transformers reads of texts of several lengths, and targets [B, T] after the start symbol."""
    tokenizer.padding_side = side
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    assert not batch["attention_mask"].all()
    return {**batch, "decoder_input_ids": torch.nn.functional.pad(targets[:, :-1], (1, 0), value=start)}


def assert_equal_logits(held, model, tokenizer, **of_targets):
    for side in ("right", "left"):
        batch = inputs_of(tokenizer, side, **of_targets)
        found = ours(held, batch)
        np.testing.assert_allclose(found, theirs(model, batch), atol=1e-5)
        assert found.std(axis=(0, 1)).min() > 0.05


def assert_near_in_bfloat16(held, model, batch):
    """Within three percent of the largest value."""
    expected = theirs(model, batch)
    error = np.abs(ours(held, batch, TransformerCompute(dtype="bfloat16")) - expected).max()
    assert 0.0 < error < 0.03 * np.abs(expected).max()


def assert_equal_gradients(held, model, batch, targets, family):
    """Compares the gradients of the cross-entropy of targets [B, T], and returns ours by their names."""
    module, ids = built(held), targets.numpy().astype(np.int32)

    def loss(params):
        scores = jax.nn.log_softmax(module.apply({"params": params}, *arrays_of(batch)))
        return -jnp.take_along_axis(scores, ids[..., None], axis=-1).sum()

    model.zero_grad()
    scores = model(**batch).logits.log_softmax(-1)
    (-scores.gather(-1, targets[..., None])).sum().backward()
    named = (*model.named_parameters(), *model.named_buffers())
    expected = {name: x.grad.numpy() for name, x in named if x.requires_grad}
    found = to_huggingface(jax.device_get(jax.jit(jax.grad(loss))(held.params)), held.config, family)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, atol=1e-4 * max(1.0, np.abs(gradient).max()), err_msg=name)
    return found


def assert_equal_tensors(found, expected):
    held, others = found.state_dict(), expected.state_dict()
    assert held.keys() == others.keys()
    for name, tensor in others.items():
        assert torch.equal(held[name], tensor), name
