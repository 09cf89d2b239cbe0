import jax
import jax.numpy as jnp
import pytest

from tests.train.programs.texts import LOOP, STEP
from train.programs.hlo import arrays, bytes_of, lowered_counts, parse


def test_types_have_sizes():
    assert arrays("(bf16[8,16]{1,0}, pred[])") == [("bf16", (8, 16)), ("pred", ())]
    assert bytes_of("(bf16[8,16]{1,0:T(8,128)}, pred[], f32[2])") == 256 + 1 + 8


def test_what_runs_is_counted_and_what_is_only_named_is_not():
    program = parse(STEP)
    assert program.entry == "main"
    assert [(one.op, times) for one, times in program.kernels()] == [
        ("custom-call", 1),
        ("fusion", 1),
        ("all-reduce-start", 1),
    ]
    assert [one.op for one in program.body(next(one for one, _ in program.kernels() if one.op == "fusion"))] == [
        "parameter",
        "convert",
    ]
    assert program.custom_calls() == {"__cublas$lt$matmul": 1}
    assert program.collectives() == {"all-reduce": 1}


def test_the_body_of_a_loop_runs_as_often_as_its_trip_count_says():
    assert {one.name: times for one, times in parse(LOOP).kernels()} == {"first": 1, "added": 7}


def test_an_optimised_program_of_this_version_of_xla_is_read():
    x = jax.ShapeDtypeStruct((4, 8), jnp.float32)

    def step(x):
        return jax.lax.scan(lambda x, _: (jnp.sin(x @ x.T @ x), None), x, length=5)[0]

    lowered = jax.jit(step).lower(x)
    assert lowered_counts(lowered.as_text())[1] == 2
    program = parse(lowered.compile().as_text())
    assert max(times for _, times in program.executed()) == 5


@pytest.mark.parametrize("text", ["", "HloModule empty"])
def test_a_text_without_a_program_has_none(text):
    assert parse(text).computations == {}
