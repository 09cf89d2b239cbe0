import re

import jax
import jax.numpy as jnp
import pytest

from tests.train.programs.texts import DIVIDED, LOOP, STEP
from train.programs.hlo import Transfer, arrays, bytes_of, lowered_counts, parse, reused_arguments


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


def test_the_body_of_a_scan_runs_as_often_as_its_condition_allows_if_nothing_else_is_known():
    text = re.sub(r", backend_config=.*", "", LOOP).replace("ROOT %yes = pred[] constant(true)", LESS_THAN_NINE)
    assert {one.name: times for one, times in parse(text).kernels()} == {"first": 1, "added": 9}


LESS_THAN_NINE = """%i.1 = s32[] get-tuple-element(%carry.1), index=0
  %nine = s32[] constant(9)
  ROOT %less = pred[] compare(%i.1, %nine), direction=LT"""


def test_a_transfer_that_is_divided_among_fusions_counts_once_at_each_turn_of_a_loop():
    gathered, scattered = parse(DIVIDED).transfers()
    assert gathered == Transfer("all-gather", 4 * 8 * 2 * 4, 4, 3)
    assert gathered.link_bytes == 3 * 256 * 3 / 4
    assert scattered == Transfer("reduce-scatter", 32 * 4, 2, 1)
    assert scattered.link_bytes == 64


def test_transfers_of_two_fusions_that_share_a_channel_count_each():
    text = DIVIDED.replace(', frontend_attributes={chain_id="2"}', "")
    assert [one.kind for one in parse(text).transfers()] == ["all-gather", "all-gather", "reduce-scatter"]


@pytest.mark.parametrize(
    ("groups", "devices"),
    [
        ("replica_groups={{0,2,4},{1,3,5}}", 3),
        ("replica_groups=[4,2]<=[8]", 2),
        ("replica_groups=mesh['data'=8] {'data'}", 8),
        ("replica_groups=mesh['a'=1,'b'=2,'c'=4], device_ids=([4,2]T(1,0)) {'b','c'}", 8),
        ("source_target_pairs={{0,1},{1,2},{2,0}}", 3),
    ],
)
def test_the_devices_of_a_transfer_are_those_of_a_group(groups, devices):
    assert parse(STEP.replace("replica_groups={{0,1}}", groups)).transfers()[0].devices == devices


def test_a_transfer_without_groups_is_refused():
    with pytest.raises(ValueError, match="without groups of devices"):
        parse(STEP.replace("replica_groups={{0,1}}, ", "")).transfers()


def test_the_transfers_of_this_version_of_xla_have_their_sizes():
    mesh = jax.make_mesh((4,), ("data",), devices=jax.devices()[:4], axis_types=(jax.sharding.AxisType.Auto,))

    def mapped(x):
        return jax.lax.psum_scatter(jax.lax.all_gather(x, "data", tiled=True) * 2.0, "data", tiled=True)

    function = jax.shard_map(mapped, mesh=mesh, in_specs=jax.P("data"), out_specs=jax.P("data"))
    text = jax.jit(function, donate_argnums=0).lower(jnp.zeros(64)).compile().as_text()
    assert parse(text).transfers() == [Transfer("all-gather", 256, 4, 1), Transfer("reduce-scatter", 256, 4, 1)]
    assert reused_arguments(text) == 1


def test_arguments_whose_memory_no_output_takes_are_not_reused():
    x = jnp.zeros(64)
    assert reused_arguments(jax.jit(lambda x: x + 1.0).lower(x).compile().as_text()) == 0


def test_an_optimised_program_of_this_version_of_xla_is_read():
    x = jax.ShapeDtypeStruct((4, 8), jnp.float32)

    def step(x):
        return jax.lax.scan(lambda x, _: (jnp.sin(x @ x.T @ x), None), x, length=5)[0]

    lowered = jax.jit(step).lower(x)
    assert lowered_counts(lowered.as_text())[1] == 2
    program = parse(lowered.compile().as_text())
    assert max(times for _, times in program.executed()) == 5


def test_a_function_of_a_lowered_program_counts_at_each_of_its_calls():
    layer = jax.jit(lambda x: jnp.sin(x @ x))
    outer = jax.jit(lambda x: layer(layer(x)) + 1.0)
    counts = [lowered_counts(jax.jit(step).lower(jnp.ones((2, 2))).as_text()) for step in (layer, outer)]
    (operations, products), twice = counts
    assert (operations, products) == (2, 1)
    assert twice[1] == 2
    assert twice[0] > 2 * operations
    assert lowered_counts(jax.jit(lambda x: outer(outer(x))).lower(jnp.ones((2, 2))).as_text()) == (2 * twice[0], 4)


@pytest.mark.parametrize("text", ["", "HloModule empty"])
def test_a_text_without_a_program_has_none(text):
    assert parse(text).computations == {}
