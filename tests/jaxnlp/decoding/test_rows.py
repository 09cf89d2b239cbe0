"""Searches over several devices give what one device gives."""

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxnlp.decoding import generation
from jaxnlp.decoding.beam import beam_search, compile_beam_search
from jaxnlp.decoding.completion import complete
from jaxnlp.decoding.generation import compile_generation, generate
from jaxnlp.decoding.rows import by_rows, jitted_by_rows, mesh_of, rows_like, with_rows_for_all
from jaxnlp.decoding.sampling import Sampling
from jaxnlp.typing import BATCH_AXIS, MODEL_AXIS
from train.logs.compile_time import compile_seconds

AXES = {"data": (4,), "data and model": (2, 2)}
PROMPTS = np.array([[0, 1], [2, 3], [4, 0], [1, 1], [3, 2], [2, 2]], np.int32)  # six rows on four devices
KEY = jax.random.key(3)


def over(shape, params):
    """The parameters whole on each device of a mesh of this shape."""
    devices = np.array(jax.devices()[: np.prod(shape)]).reshape(shape)
    mesh = Mesh(devices, (BATCH_AXIS, MODEL_AXIS)[: len(shape)])
    return jax.device_put(params, NamedSharding(mesh, PartitionSpec()))


def sampled(decoder, params, max_new_tokens=7, **options):
    tokens = generate(decoder, params, PROMPTS, max_new_tokens=max_new_tokens, key=KEY, **options)
    return np.stack(list(tokens), axis=1)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("axes", AXES)
def test_sampled_tokens_are_those_of_one_device(recurrent, axes):
    for sampling in (Sampling(), Sampling(temperature=0.7, top_k=3, top_p=0.9)):
        one = sampled(recurrent.decoder, recurrent.params, sampling=sampling)
        several = sampled(recurrent.decoder, over(AXES[axes], recurrent.params), sampling=sampling)
        np.testing.assert_array_equal(several, one)
    assert len(np.unique(one, axis=0)) == len(one)  # each row has noise of its own


@pytest.mark.thorough
@pytest.mark.parametrize("axes", AXES)
def test_beams_are_those_of_one_device(recurrent, axes):
    options = {"num_beams": 3, "max_new_tokens": 6, "stop": 0, "length_penalty": 0.6, "n_best": 2}
    options |= {"max_lengths": np.array([6, 2, 5, 6, 1, 4])}
    one = beam_search(recurrent.decoder, recurrent.params, PROMPTS, **options)
    several = beam_search(recurrent.decoder, over(AXES[axes], recurrent.params), PROMPTS, **options)
    np.testing.assert_array_equal(several.tokens, one.tokens)
    np.testing.assert_array_equal(several.lengths, one.lengths)
    np.testing.assert_allclose(several.scores, one.scores, rtol=1e-5)
    assert several.tokens.shape == (6, 2, 6)
    assert len(set(one.lengths[:, 0].tolist())) > 2


@pytest.mark.thorough
def test_a_search_ends_when_the_rows_of_all_devices_end(recurrent):
    """Each device alone would end earlier or later."""
    options = {"stop": 0, "max_new_tokens": 30, "sampling": Sampling(temperature=3.0)}
    one = sampled(recurrent.decoder, recurrent.params, **options)
    several = sampled(recurrent.decoder, over((4,), recurrent.params), **options)
    np.testing.assert_array_equal(several, one)
    ends = (one == 0).argmax(axis=1)
    assert one.shape[1] == 1 + ends.max() < 30
    assert len(set(ends.reshape(3, 2).max(axis=1))) == 3


def test_completions_are_those_of_one_device(recurrent):
    prompts = [row[:count] for row, count in zip(PROMPTS, (1, 2, 2, 1, 2, 2), strict=True)]
    one = complete(recurrent.decoder, recurrent.params, prompts, stop=0, max_new_tokens=5)
    several = complete(recurrent.decoder, over((4,), recurrent.params), prompts, stop=0, max_new_tokens=5)
    assert [row.tolist() for row in several] == [row.tolist() for row in one]
    assert any(map(len, one))


def test_each_device_keeps_only_its_rows_and_nothing_crosses_the_devices(recurrent):
    params, decoder = over((4,), recurrent.params), recurrent.decoder
    mesh = mesh_of(params)
    prompt = np.pad(with_rows_for_all(mesh, PROMPTS), [(0, 0), (0, 14)])
    tokens, cache = generation._prefill(mesh, decoder, Sampling(), params, prompt, 2, None, KEY, 0)
    assert cache[0].sharding.shard_shape(cache[0].shape) == (2, 6)
    step = generation._decode.lower(mesh, decoder, Sampling(), params, np.asarray(tokens), cache, KEY, 1)
    text = step.compile().as_text()
    assert not [kind for kind in ("all-gather", "all-reduce", "all-to-all", "collective-permute") if kind in text]


@pytest.mark.thorough
def test_programs_that_are_compiled_ahead_are_those_that_are_called(recurrent):
    params, decoder = over((4,), recurrent.params), recurrent.decoder
    whole, mesh = jax.tree.leaves(params)[0].sharding, mesh_of(params)

    def compile_ahead(function, *arguments):
        function.lower(*arguments).compile()
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole, weak_type=x.weak_type),
            function.eval_shape(*arguments),
        )

    empty = decoder.empty_cache(8)
    cache = jax.tree.map(lambda x, like: jax.device_put(x, like.sharding), empty, rows_like(mesh, empty))
    prompt = with_rows_for_all(mesh, PROMPTS)[:, :1]
    options = {"num_beams": 2, "max_new_tokens": 4, "stop": 0, "no_repeat_ngram": 0, "n_best": 1, "cache": cache}
    compile_generation(compile_ahead, decoder, params, 6, 2, max_new_tokens=4)
    compile_beam_search(compile_ahead, decoder, params, 8, coverage=False, **options)
    before = compile_seconds()
    sampled(decoder, params)
    beam_search(decoder, params, prompt, **options)
    assert compile_seconds() == before
    beam_search(decoder, params, prompt, **options | {"num_beams": 3})
    assert compile_seconds() > before


def test_one_device_has_all_rows_and_no_mesh(recurrent):
    assert mesh_of(recurrent.params) is None
    assert mesh_of(over((1,), recurrent.params)) is None
    assert mesh_of({}) is None
    np.testing.assert_array_equal(by_rows(None, np.add, np.ones(2), np.ones(2)), [2, 2])
    np.testing.assert_array_equal(with_rows_for_all(None, PROMPTS), PROMPTS)


def test_rows_of_a_jitted_function_come_back_in_order_and_without_padding(recurrent):
    squared = jitted_by_rows(lambda params, x: x**2 * params["W"][0, 0])
    x = np.arange(6, dtype=np.float32)
    for params in (recurrent.params, over((4,), recurrent.params)):
        np.testing.assert_allclose(squared(params, x), x**2 * recurrent.params["W"][0, 0], rtol=1e-6)
