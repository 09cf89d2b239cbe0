import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.convert.encoder_weights import from_huggingface, tensor_prefixes, to_huggingface
from jaxnlp.convert.encoders import families
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.models.bert import Bert, BertConfig
from jaxnlp.models.bert_pretraining import PretrainingHeads

VOCABULARY = 11
CONFIG = BertConfig(num_layers=2, num_heads=2, width=4, feed_forward_width=6, max_positions=5)


def parameters(config=CONFIG):
    """Of the encoder and of the heads, each element random."""
    model = Bert(config, VOCABULARY)

    def shapes():
        params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"]
        hidden = jnp.zeros((1, config.width))
        heads = PretrainingHeads(VOCABULARY).init(jax.random.key(0), hidden, hidden)["params"]
        return params, heads

    generator = np.random.default_rng(0)
    return jax.tree.map(lambda x: generator.normal(size=x.shape).astype(np.float32), jax.eval_shape(shapes))


def tensors(*, heads=False, config=CONFIG):
    params, its_heads = parameters(config)
    return to_huggingface(params, config, VOCABULARY, its_heads if heads else None)


@pytest.mark.parametrize("config", [CONFIG, dataclasses.replace(CONFIG, use_pooler=False)], ids=["pooler", "none"])
def test_export_then_import_gives_the_same_bits(config):
    params, heads = parameters(config)
    found = from_huggingface(to_huggingface(params, config, VOCABULARY), config, VOCABULARY)
    chex.assert_trees_all_equal(found.params, params)
    assert found.heads is None
    found = from_huggingface(to_huggingface(params, config, VOCABULARY, heads), config, VOCABULARY)
    chex.assert_trees_all_equal((found.params, found.heads), (params, heads))


@pytest.mark.parametrize("heads", [False, True])
def test_import_then_export_gives_the_same_bits_under_the_same_names(heads):
    expected = tensors(heads=heads)
    params, its_heads = from_huggingface(expected, CONFIG, VOCABULARY)
    found = to_huggingface(params, CONFIG, VOCABULARY, its_heads)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor)
        assert found[name].flags.c_contiguous


@pytest.mark.parametrize("prefix", tensor_prefixes(families()["bert"]))
def test_prefixes_are_understood(prefix):
    expected = from_huggingface(tensors(), CONFIG, VOCABULARY).params
    prefixed = {prefix + name: tensor for name, tensor in tensors().items()}
    prefixed[f"{prefix}embeddings.position_ids"] = np.arange(5)[None]
    chex.assert_trees_all_equal(from_huggingface(prefixed, CONFIG, VOCABULARY).params, expected)


def test_two_tensors_that_are_the_same_one_of_bert_are_refused():
    twice = {f"bert.{name}": tensor for name, tensor in tensors().items()}
    twice["pooler.dense.bias"] = twice["bert.pooler.dense.bias"]
    with pytest.raises(WeightsError, match=r"bert.pooler.dense.bias and pooler.dense.bias are the same tensor"):
        from_huggingface(twice, CONFIG, VOCABULARY)


def test_old_names_of_normalisations_are_understood():
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in tensors(heads=True).items()
    }
    assert old.keys() != tensors(heads=True).keys()
    expected = from_huggingface(tensors(heads=True), CONFIG, VOCABULARY)
    chex.assert_trees_all_equal(from_huggingface(old, CONFIG, VOCABULARY), expected)


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16, np.float64])
def test_floats_of_any_precision_become_float32(dtype):
    cast = {name: tensor.astype(dtype) for name, tensor in tensors().items()}
    expected = {name: tensor.astype(np.float32) for name, tensor in cast.items()}
    found = from_huggingface(cast, CONFIG, VOCABULARY).params
    chex.assert_trees_all_equal(found, from_huggingface(expected, CONFIG, VOCABULARY).params)
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {np.dtype(np.float32)}


def test_parameters_are_copies():
    held = tensors()
    params = from_huggingface(held, CONFIG, VOCABULARY).params
    before = jax.tree.map(np.copy, params)
    for tensor in held.values():
        tensor[...] = 0.0
    chex.assert_trees_all_equal(params, before)


def test_copies_of_tied_tensors_may_be_missing_and_must_be_equal():
    held = tensors(heads=True)
    copies = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias")
    without = {name: tensor for name, tensor in held.items() if name not in copies}
    chex.assert_trees_all_equal(
        from_huggingface(without, CONFIG, VOCABULARY), from_huggingface(held, CONFIG, VOCABULARY)
    )
    held[copies[0]] = held[copies[0]] + 1.0
    with pytest.raises(WeightsError, match=r"cls.predictions.decoder.weight is not tied: it differs from embeddings"):
        from_huggingface(held, CONFIG, VOCABULARY)


def test_all_that_does_not_fit_is_listed():
    held = tensors()
    del held["encoder.layer.1.output.dense.bias"]
    held["classifier.weight"] = np.zeros((2, 4), np.float32)
    held["pooler.dense.weight"] = np.zeros((4, 5), np.float32)
    held["embeddings.LayerNorm.bias"] = np.zeros(4, np.int64)
    held["embeddings.LayerNorm.weight"] = np.full(4, np.nan, np.float32)
    held["step"] = np.zeros((), np.float32)
    with pytest.raises(WeightsError) as caught:
        from_huggingface(held, CONFIG, VOCABULARY)
    assert str(caught.value).splitlines() == [
        "tensors that do not fit this BERT: 6",
        "  missing: encoder.layer.1.output.dense.bias (4,)",
        "  embeddings.LayerNorm.weight holds infinity or NaN",
        "  embeddings.LayerNorm.bias holds int64, expected floats",
        "  pooler.dense.weight (4, 5), expected (4, 4)",
        "  unknown: classifier.weight (2, 4)",
        "  unknown: step ()",
        "To ignore unknown tensors, give the first parts of their names: --ignore classifier. step (commands), "
        "--init-ignore classifier. step (training) or ignore=('classifier.', 'step')",
    ]
    del held["classifier.weight"], held["step"]
    with pytest.raises(WeightsError, match=r"^(?!.*ignore)(?s:.*)missing: encoder.layer.1.output.dense.bias") as caught:
        from_huggingface(held, CONFIG, VOCABULARY)
    assert "To ignore unknown tensors" not in str(caught.value)


def test_the_hint_names_no_beginning_that_tensors_of_bert_share():
    held = {f"bert.{name}": tensor for name, tensor in tensors().items()} | {"bert.adapter.weight": np.zeros(3, "f4")}
    with pytest.raises(WeightsError, match=r"first parts of their names: --ignore bert\.adapter\.weight \(commands\)"):
        from_huggingface(held, CONFIG, VOCABULARY)


@pytest.mark.parametrize("other", ["cls.seq_relationship.", "cls.predictions."])
def test_a_head_may_be_there_alone_but_not_in_part(other):
    """As BertForMaskedLM and BertForNextSentencePrediction have them."""
    held = {name: tensor for name, tensor in tensors(heads=True).items() if not name.startswith(other)}
    found, both = (from_huggingface(each, CONFIG, VOCABULARY) for each in (held, tensors(heads=True)))
    assert found.heads
    assert found.heads.keys() < both.heads.keys()
    chex.assert_trees_all_equal(found.heads, {name: both.heads[name] for name in found.heads})
    again = to_huggingface(found.params, CONFIG, VOCABULARY, found.heads)
    prefixed = {name if name.startswith("cls.") else f"bert.{name}": tensor for name, tensor in held.items()}
    chex.assert_trees_all_equal(again, {name.replace("bert.bert.", "bert."): value for name, value in prefixed.items()})
    last = next(name for name in held if name.startswith("cls.") and name.endswith((".bias", "relationship.bias")))
    with pytest.raises(WeightsError, match=rf"missing: {last}"):
        from_huggingface({name: tensor for name, tensor in held.items() if name != last}, CONFIG, VOCABULARY)


def test_another_model_is_refused():
    with pytest.raises(WeightsError, match=r"not a BERT checkpoint: none of its 1 tensors is called embeddings"):
        from_huggingface({"wte.weight": np.zeros((3, 4), np.float32)}, CONFIG, VOCABULARY)


def test_parameters_of_another_shape_are_not_exported():
    params, _ = parameters()
    changed = {**params, "pooler": {**params["pooler"], "bias": np.zeros(3, np.float32)}}
    with pytest.raises(WeightsError, match=r"pooler/bias that fits the config: its shape is \(3,\), expected \(4,\)"):
        to_huggingface(changed, CONFIG, VOCABULARY)
    with pytest.raises(WeightsError, match="no parameter segments that fits"):
        to_huggingface({name: value for name, value in params.items() if name != "segments"}, CONFIG, VOCABULARY)
