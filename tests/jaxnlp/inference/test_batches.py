import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.inference.batches import (
    OVERHEAD,
    ROW_SHAPES,
    Shape,
    batches,
    decoding_shapes,
    in_batches,
    packed_rows,
    padded_length,
    sentence_shapes,
    text_shapes,
    warm_up,
)

RNG = np.random.default_rng(0)


def cost(shape, longest, step_cost):
    return OVERHEAD + shape.rows * shape.length + step_cost * longest


@pytest.mark.parametrize("longest", [1, 16, 32, 40, 64, 100, 128, 256, 512, 2048, 8192])
def test_at_most_nine_shapes_hold_texts_of_every_length(longest):
    for function, shortest in ((text_shapes, 16), (sentence_shapes, 16), (decoding_shapes, 32)):
        shapes = function(longest)
        assert len(set(shapes)) == len(shapes) <= 9
        assert {shape.rows for shape in shapes} == {1, 8, 64}
        assert max(shape.length for shape in shapes) == padded_length(longest, shapes) == longest
        assert padded_length(1, shapes) == min(shortest, longest)


def test_eight_long_texts_share_a_batch_where_one_takes_as_long(monkeypatch):
    """A CPU computes them one by one, except when it decodes; an accelerator together."""
    lengths = [500] * 8
    assert [shape for _, shape in batches(lengths, text_shapes(512))] == [Shape(1, 512)] * 8
    assert [shape for _, shape in batches(lengths, decoding_shapes(512))] == [Shape(8, 512)]
    monkeypatch.setattr("jaxnlp.inference.batches.target_platform", lambda: "gpu")
    assert text_shapes(512) == decoding_shapes(512)


def test_each_input_is_in_one_batch_that_holds_it():
    for number in (1, 2, 7, 9, 64, 65, 300):
        lengths = RNG.integers(1, 200, number).tolist()
        seen = []
        for numbers, shape in batches(lengths, text_shapes(200)):
            assert 1 <= len(numbers) <= shape.rows
            assert max(lengths[n] for n in numbers) <= shape.length
            seen += numbers
        assert sorted(seen) == list(range(number))
    assert list(batches([], text_shapes(200))) == []


def test_one_short_text_costs_one_row():
    assert list(batches([7], text_shapes(512))) == [([0], Shape(1, 16))]
    assert list(batches([130], text_shapes(512))) == [([0], Shape(1, 256))]
    assert [shape for _, shape in batches([64], ROW_SHAPES)] == [Shape(1, 64)]
    assert [shape for _, shape in batches([64] * 9, ROW_SHAPES)] == [Shape(1, 64), Shape(8, 64)]


def test_many_short_sentences_are_padded_less_than_texts():
    assert [shape for _, shape in batches([12] * 64, text_shapes(256))] == [Shape(64, 32)]
    assert [shape for _, shape in batches([12] * 64, sentence_shapes(256))] == [Shape(64, 16)]


def test_a_long_text_is_not_padded_to_a_far_longest_one():
    for function in (text_shapes, sentence_shapes, decoding_shapes):
        assert [padded_length(length, function(8192)) for length in (100, 300, 1100, 2049)] == [128, 512, 2048, 8192]


@pytest.mark.parametrize("step_cost", [0, 64])
def test_the_division_has_the_least_cost(step_cost):
    """Against all divisions of sorted inputs into batches."""
    shapes = (Shape(1, 32), Shape(1, 128), Shape(4, 32), Shape(4, 128))

    def least(lengths):
        if not lengths:
            return 0
        fitting = [shape for shape in shapes if shape.length >= lengths[-1]]
        return min(
            cost(shape, lengths[-1], step_cost) + least(lengths[:-taken])
            for shape in fitting
            for taken in range(1, min(shape.rows, len(lengths)) + 1)
        )

    for number, seed in itertools.product((1, 3, 6, 9), range(3)):
        lengths = np.random.default_rng(seed).integers(1, 129, number).tolist()
        found = batches(lengths, shapes, step_cost)
        total = sum(cost(shape, max(lengths[index] for index in indices), step_cost) for indices, shape in found)
        assert total == least(sorted(lengths))


def test_results_are_trees_of_rows_in_the_order_of_the_inputs():
    inputs = [[1] * n for n in (40, 3, 3, 100, 1, 64, 2, 2, 2, 2, 2)]

    def compute(numbers, shape):
        rows = np.zeros(shape, np.int32)
        for row, number in enumerate(numbers):
            rows[row, : len(inputs[number])] = inputs[number]
        return {"sum": jnp.asarray(rows.sum(axis=1)), "rows": rows}

    found = in_batches(list(map(len, inputs)), text_shapes(128), compute)
    assert [int(one["sum"]) for one in found] == list(map(len, inputs))
    assert all(isinstance(one["sum"], np.generic | np.ndarray) for one in found)
    assert in_batches([], text_shapes(128), compute) == []


def test_a_thousand_calls_compile_no_program_that_warming_up_did_not():
    traced = []

    @jax.jit
    def program(rows):
        traced.append(rows.shape)
        return rows.sum(axis=1)

    def compute(numbers, shape):
        return program(np.zeros(shape, np.float32))

    shapes = text_shapes(512)
    warm_up(shapes, compute)
    assert len(traced) == len(shapes) == 9
    for _ in range(1000):
        in_batches(RNG.integers(1, 513, RNG.integers(1, 16)).tolist(), shapes, compute)
    assert len(traced) == 9


def test_inputs_share_rows_of_at_most_so_many_positions_and_inputs_and_a_longer_one_has_its_own():
    lengths = [5, 3, 9, 4, 2, 30, 2, 2]
    rows = packed_rows(lengths, 10, 3)
    assert rows == [[4, 6, 7], [1, 3], [0], [2], [5]]
    assert packed_rows([], 10, 3) == []
