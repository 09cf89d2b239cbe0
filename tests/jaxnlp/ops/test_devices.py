import doctest
import re
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.cudnn import fused_attention_stablehlo as checks

from jaxnlp.ops import devices
from jaxnlp.ops.attention import dot_product_attention
from jaxnlp.ops.devices import compile_for, compiled_for, cuda_capability, gpu_count, target_platform
from jaxnlp.ops.losses import linear_cross_entropy
from jaxnlp.ops.matrix_products import column_sums
from jaxnlp.ops.normalization import layer_norm
from jaxnlp.ops.recurrent_layers import LSTM, recurrent

TARGETS = np.zeros(3, np.int32)


def attention(x, w):
    y = (x @ w).reshape(1, 3, 1, 4)
    return dot_product_attention(y, y, y)


def lstm(x, w):
    gates = jnp.stack([w] * 4, axis=1)
    state = (jnp.zeros((1, 4)),) * 2
    return recurrent(LSTM, x[None], state, w_x=gates, w_h=gates, b=jnp.zeros((4, 4)))[0]


FUNCTIONS = {
    "column_sums": lambda x, w: column_sums(x @ w),
    "layer_norm": lambda x, w: layer_norm(x, w[0]),
    "linear_cross_entropy": lambda x, w: linear_cross_entropy(x, w, w[0], TARGETS).objective,
    "attention": attention,
    "recurrent": lstm,
}


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_platform_has_its_own_program_also_of_functions_that_were_traced_before(name):
    inner = jax.jit(FUNCTIONS[name])  # one function for all platforms: JAX may find its trace in a cache
    both = jax.jit(jax.value_and_grad(lambda x, w: jnp.sin(inner(x, w)).sum(), argnums=(0, 1)))
    shapes = [jax.ShapeDtypeStruct(shape, np.float32) for shape in ((3, 4), (4, 4))]

    def program(platform):
        with compile_for(platform):
            traced = both.trace(*shapes)
            return str(traced.jaxpr), traced.lower(lowering_platforms=(platform,)).as_text()

    by_default = str(both.trace(*shapes).jaxpr)
    on_cpu, on_tpu, again = program("cpu"), program("tpu"), program("cpu")
    assert "layout_constraint" in on_cpu[0] or name == "layer_norm"
    assert "layout_constraint" not in on_tpu[0]
    assert "Layout" not in on_tpu[1]
    assert on_cpu[0] != on_tpu[0]
    assert on_cpu == again
    assert by_default == on_cpu[0] == str(both.trace(*shapes).jaxpr)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_traced_function_may_enter_the_context_itself(name):
    def loss(x, w):
        return jnp.sin(jax.jit(FUNCTIONS[name])(x, w)).sum()

    def on(platform):
        def step(x, w):
            with compile_for(platform):
                return jax.lax.scan(lambda x, _: (x, jax.value_and_grad(loss, argnums=(0, 1))(x, w)), x, None, 2)

        return step

    x, w = np.ones((3, 4), np.float32), np.ones((4, 4), np.float32)
    on_cpu, on_tpu = (str(jax.make_jaxpr(on(platform))(x, w)) for platform in ("cpu", "tpu"))
    assert "layout_constraint" in on_cpu or name == "layer_norm"
    assert "layout_constraint" not in on_tpu
    assert on_cpu != on_tpu


def test_programs_are_for_the_default_device():
    for device, platform in ((jax.devices("cpu")[0], "cpu"), ("tpu", "tpu")):
        with jax.default_device(device):
            assert target_platform() == platform
            with compile_for("gpu"):
                assert target_platform() == "gpu"


def test_a_context_ends_where_it_ends_and_may_be_in_another():
    assert target_platform() == "cpu"
    with compile_for("tpu"):
        assert target_platform() == "tpu"
        with compile_for("gpu"):
            assert target_platform() == "gpu"
        assert target_platform() == "tpu"
    with pytest.raises(ZeroDivisionError), compile_for("tpu"):
        1 / 0  # noqa: B018
    assert target_platform() == "cpu"


def test_programs_for_a_gpu_that_is_not_there_do_without_cudnn():
    with compile_for("gpu"):
        assert cuda_capability() is None
        jax.eval_shape(attention, jnp.ones((3, 4)), jnp.ones((4, 4)))


def test_a_named_gpu_need_not_be_there_and_its_programs_call_cudnn():
    q = jax.ShapeDtypeStruct((1, 64, 1, 64), jnp.bfloat16)
    attend = jax.jit(lambda q: dot_product_attention(q, q, q, causal=True, implementation="cudnn"))
    with compile_for("gpu", capability=(9, 0)):
        assert cuda_capability() == (9, 0)
        assert "__cudnn$fmha" in attend.trace(q).lower(lowering_platforms=("cuda",)).as_text()
        with compile_for("gpu"):
            assert cuda_capability() == (9, 0)
        with compile_for("cpu"):
            assert cuda_capability() is None
    with compile_for("gpu", capability=(7, 5)), pytest.raises(ValueError, match=re.escape("8.0, got 7.5")):
        attend.trace(q)


def test_the_checks_before_cudnn_ask_this_machine_unless_a_gpu_is_named():
    with compile_for("gpu", capability=(9, 0)):
        assert checks.check_compute_capability("9.0")
        assert not checks.check_compute_capability("10.0")
        assert checks.is_cuda_compute_capability_equal("9.0")
        assert checks.check_cudnn_version() >= 90000
    assert not checks.check_compute_capability("9.0")
    assert not checks.is_cuda_compute_capability_equal("9.0")


def test_only_gpus_have_a_compute_capability():
    with pytest.raises(ValueError, match="compute capability"):
        compile_for("tpu", capability=(9, 0))


def test_nothing_but_devices_asks_for_the_default_backend():
    root = Path(devices.__file__).parents[2]
    files = [path for package in ("jaxnlp", "data", "train") for path in sorted((root / package).rglob("*.py"))]
    asking = [path.relative_to(root).as_posix() for path in files if "default_backend" in path.read_text("utf-8")]
    assert asking == ["jaxnlp/ops/devices.py"]


def test_platforms_that_jax_does_not_have_are_refused():
    with pytest.raises(ValueError, match=re.escape("platform must be one of cpu, gpu, tpu, any, got 'cuda'")):
        compile_for("cuda")


def test_the_example_of_the_docstring_runs():
    assert doctest.testmod(devices) == (0, 1)


def test_a_cpu_is_no_gpu():
    assert cuda_capability() is None
    assert gpu_count() == 0


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ({"compute_capability": "9.0"}, (9, 0)),
        ({"compute_capability": "12.1"}, (12, 1)),
        ({"compute_capability": "gfx90a"}, None),
        ({}, None),
    ],
    ids=str,
)
def test_nvidia_gpus_say_what_they_can_do(monkeypatch, device, expected):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "local_devices", lambda *, backend: [types.SimpleNamespace(**device)])
    assert cuda_capability() == expected


@pytest.mark.parametrize(("platform", "expected"), [("tpu", "tpu"), ("a new one", "cpu")])
def test_a_function_is_traced_for_the_platform_of_a_device(platform, expected):
    traced = []
    device = types.SimpleNamespace(platform=platform)
    jax.eval_shape(compiled_for(device, lambda x: traced.append(target_platform()) or x), 1.0)
    assert traced == [expected]


@pytest.mark.parametrize("rows", [4, 1])
def test_devices_that_share_the_heads_give_cudnn_each_its_own(rows):
    kinds = (jax.sharding.AxisType.Auto,) * 2
    mesh = jax.make_mesh((rows, 2), ("data", "model"), devices=jax.devices()[: 2 * rows], axis_types=kinds)

    def loss(q):
        return dot_product_attention(q, q, q, causal=True, implementation="cudnn").astype(jnp.float32).sum()

    def gradient(q):
        by_rows = jax.shard_map(
            jax.grad(loss), in_specs=jax.P("data"), out_specs=jax.P("data"), axis_names={"data"}, check_vma=False
        )
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return (by_rows if rows > 1 else jax.grad(loss))(q)

    q = jax.ShapeDtypeStruct(
        (8, 64, 4, 32), jnp.bfloat16, sharding=jax.NamedSharding(mesh, jax.P("data", None, "model"))
    )
    with compile_for("gpu", capability=(9, 0)):
        text = jax.jit(gradient).trace(q).lower(lowering_platforms=("cuda",)).as_text()
    calls = re.findall(r"custom_call @__cudnn\$fmha\w*\(.*?: \((tensor<\w+>)", text)
    assert calls == [f"tensor<{8 // rows}x64x2x32xbf16>"] * 2
