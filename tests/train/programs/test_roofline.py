import pytest

from tests.train.programs.texts import LOOP, STEP
from train.programs.hlo import Instruction, parse
from train.programs.peaks import Peaks
from train.programs.roofline import BANDWIDTH_SHARE, PRODUCT_SHARE, estimate, product_flops, traffic

FLOPS = 2 * 256 * 512 * 128


def test_a_kernel_takes_as_long_as_its_products_or_its_traffic():
    slow_products = estimate(parse(STEP), Peaks(1e6, 1e6, 1e15, 1e30, launch=0.0))
    assert slow_products.flops == FLOPS
    assert slow_products.seconds == pytest.approx(FLOPS / 1e6 / PRODUCT_SHARE, rel=1e-6)
    assert slow_products.peak_share == pytest.approx(PRODUCT_SHARE, rel=1e-6)
    slow_memory = estimate(parse(STEP), Peaks(1e30, 1e30, 1e6, 1e30, launch=0.0))
    product = 2 * (256 * 512 + 512 * 128 + 256 * 128) + 4096
    widened, reduced = (2 + 4) * 256 * 128, 2 * 4 * 256 * 128
    assert slow_memory.seconds == pytest.approx((product + widened + reduced) / 1e6 / BANDWIDTH_SHARE)
    assert estimate(parse(STEP), Peaks(1e30, 1e30, 1e30, 1e30, launch=1.0)).seconds == pytest.approx(3)


def test_what_crosses_the_links_takes_its_time_if_it_is_longer_than_the_kernels():
    sent = 256 * 128 * 4  # of two devices each sends half, twice
    slow_links = estimate(parse(STEP), Peaks(1e30, 1e30, 1e30, 1e3, launch=0.0))
    assert slow_links.seconds == slow_links.link_seconds == pytest.approx(sent / 1e3)
    fast_links = estimate(parse(STEP), Peaks(1e6, 1e6, 1e30, 1e9, launch=0.0))
    assert fast_links.link_seconds == pytest.approx(sent / 1e9)
    assert fast_links.seconds == pytest.approx(FLOPS / 1e6 / PRODUCT_SHARE, rel=1e-6)


def test_a_loop_takes_its_time_at_each_turn():
    found = estimate(parse(LOOP), Peaks(1.0, 1.0, 4000 / BANDWIDTH_SHARE, 1e30, launch=0.0))
    assert found.seconds == pytest.approx(2 + 7 * 2)  # each operation reads an array and writes one
    assert (found.flops, found.peak_share) == (0, 0)


@pytest.mark.parametrize(
    ("op", "line", "expected"),
    [
        ("dot", "lhs_contracting_dims={1}, rhs_contracting_dims={0}", 2 * 8 * 32 * 16),
        ("convolution", "dim_labels=bf_io->bf", 2 * 8 * 32 * 16),
        ("add", "", 0),
    ],
)
def test_products_are_those_of_gpus_and_of_tpus(op, line, expected):
    types = {"x": "bf16[8,16]{1,0}", "w": "bf16[16,32]{1,0}"}
    assert product_flops(Instruction("y", "f32[8,32]{1,0}", op, ("x", "w"), line), types) == (expected, True)


@pytest.mark.parametrize(
    "window",
    ["size=4x16 stride=3x15 lhs_dilate=4x16", "size=4x16 stride=4x16 pad=3_3x15_15 lhs_dilate=3x15 rhs_reversal=1x1"],
)
def test_products_of_a_batch_on_a_tpu_count_once_each(window):
    types = {"q": "bf16[4,16,32,8]{3,2,1,0}", "k": "bf16[4,16,64,8]{3,2,1,0}"}
    line = f"window={{{window}}}, dim_labels=01bf_01oi->01bf, metadata={{}}"
    scores = Instruction("y", "f32[4,16,32,64]{3,2,1,0}", "convolution", ("q", "k"), line)
    assert product_flops(scores, types) == (2 * 4 * 16 * 32 * 64 * 8, True)


def test_the_gradient_of_a_kernel_of_several_axes_on_a_tpu_counts_no_padding():
    types = {"x": "bf16[8,4,1,1]{1,0,3,2}", "dy": "bf16[3,2,5,8]{3,2,1,0}"}
    line = "window={size=3x2 pad=2_2x1_1 rhs_reversal=1x1}, dim_labels=fb01_01oi->b01f, metadata={}"
    gradient = Instruction("dw", "bf16[4,3,2,5]{3,0,2,1}", "convolution", ("x", "dy"), line)
    assert product_flops(gradient, types) == (2 * 8 * 4 * 3 * 2 * 5, True)


def test_a_window_that_is_not_dilated_counts_whole():
    types = {"x": "bf16[2,9,9,3]{3,2,1,0}", "w": "bf16[3,3,3,5]{3,2,1,0}"}
    one = Instruction("y", "f32[2,7,7,5]", "convolution", ("x", "w"), "window={size=3x3}, dim_labels=b01f_01io->b01f")
    assert product_flops(one, types) == (2 * 2 * 7 * 7 * 5 * 3 * 3 * 3, True)


def test_attention_of_cudnn_has_two_products_and_its_gradient_five():
    types = dict.fromkeys("qkv", "bf16[2,64,4,32]{3,2,1,0}")
    one = 2 * 2 * 64 * 64 * 4 * 32
    for target, products in (("__cudnn$fmhaSoftmax", 2), ("__cudnn$fmhaSoftmaxBackward", 5)):
        line = f'custom_call_target="{target}", mask_type NO_MASK'
        call = Instruction("y", "(bf16[2,4,64,32])", "custom-call", ("q", "k", "v"), line)
        assert product_flops(call, types) == (products * one, True)


def flash_flops(name, result, operands, target, types):
    """Those of a call of a kernel, as XLA writes it."""
    line = f'custom_call_target="{target}", metadata={{op_name="jit(step)/jvp(jit(_forward))/{name}/pallas_call"}}'
    return product_flops(Instruction("y", result, "custom-call", operands, line), types)


@pytest.mark.parametrize(("kernel", "products"), [("forward", 2), ("backward_keys", 4), ("backward_queries", 3)])
def test_flash_has_two_products_forward_and_seven_backward_and_half_if_causal(kernel, products):
    one = 2 * 2 * 4 * 384 * 384 * 64  # 2 examples, 4 heads, packed on a GPU
    types = {"qkv": "bf16[2,384,3,4,64]", "dy": "bf16[2,384,1,4,64]", "s": "f32[2,4,384]"}
    result = f"({types['dy']}, {types['s']})" if kernel == "forward" else types["qkv"]
    operands = ("qkv", "qkv", "qkv", "dy", "s", "s")
    found = flash_flops(f"flash_{kernel}_causal", result, operands, "__gpu$xla.gpu.triton", types)
    assert found == (products * one / 2, True)
    one = 2 * 2 * 4 * 112 * 208 * 128  # a TPU pads these heads to 128 columns
    types = {"q": "bf16[2,112,512]", "kv": "bf16[2,208,512]", "dy": "bf16[2,112,512]", "s": "f32[2,4,1,112]"}
    result = f"({types['dy']}, {types['s']})" if kernel == "forward" else types["kv"]
    operands = ("q", "kv", "kv", "dy", "s", "s")
    assert flash_flops(f"flash_{kernel}", result, operands, "tpu_custom_call", types) == (products * one, True)
    assert flash_flops(f"other_{kernel}", result, operands, "tpu_custom_call", types) == (0, True)


def test_a_kernel_reads_an_array_once_that_it_is_given_several_times():
    text = """HloModule m

ENTRY %main (x: bf16[2,8]) -> bf16[8] {
  %x = bf16[2,8]{1,0} parameter(0)
  ROOT %y = bf16[8]{0} custom-call(%x, %x, %x), custom_call_target="any"
}
"""
    program = parse(text)
    [(kernel, _)] = program.kernels()
    assert traffic(kernel, program, {"x": "bf16[2,8]"}) == 32 + 16


def test_an_array_that_is_updated_in_place_costs_what_is_written():
    text = """HloModule m

%update (all: f32[1000,8], row: f32[1,8], at: s32[]) -> f32[1000,8] {
  %all = f32[1000,8]{1,0} parameter(0)
  %row = f32[1,8]{1,0} parameter(1)
  %at = s32[] parameter(2)
  ROOT %new = f32[1000,8]{1,0} dynamic-update-slice(%all, %row, %at, %at)
}

ENTRY %main (a: f32[1000,8], b: f32[1,8], c: s32[]) -> f32[1000,8] {
  %a = f32[1000,8]{1,0} parameter(0)
  %b = f32[1,8]{1,0} parameter(1)
  %c = s32[] parameter(2)
  ROOT %fused = f32[1000,8]{1,0} fusion(%a, %b, %c), kind=kLoop, calls=%update
}
"""
    seconds = estimate(parse(text), Peaks(1.0, 1.0, 1 / BANDWIDTH_SHARE, 1e30, launch=0.0)).seconds
    assert seconds == pytest.approx(32 + 32 + 4)


GATHER = """HloModule m

%pick (scores: bf16[1000,8], at: s32[4,2]) -> f32[4] {
  %scores = bf16[1000,8]{1,0} parameter(0)
  %at = s32[4,2]{1,0} parameter(1)
  %wide = f32[1000,8]{1,0} convert(%scores)
  %four = f32[4]{0} gather(%wide, %at), slice_sizes={1,1}
  ROOT %all = OPERATION
}

ENTRY %main (a: bf16[1000,8], b: s32[4,2]) -> f32[4] {
  %a = bf16[1000,8]{1,0} parameter(0)
  %b = s32[4,2]{1,0} parameter(1)
  ROOT %fused = f32[4]{0} fusion(%a, %b), kind=kLoop, calls=%pick
}
"""


@pytest.mark.parametrize(
    ("operation", "read"),
    [
        ("f32[4]{0} negate(%four)", 4 * 2),
        ("f32[4]{0} reduce(%wide, %four), dimensions={1}", 1000 * 8 * 2),  # all of the array has another use
    ],
)
def test_of_an_array_that_is_gathered_from_only_those_elements_are_read(operation, read):
    seconds = estimate(
        parse(GATHER.replace("OPERATION", operation)), Peaks(1.0, 1.0, 1 / BANDWIDTH_SHARE, 1e30, launch=0.0)
    ).seconds
    assert seconds == pytest.approx(4 * 4 + 4 * 2 * 4 + read)


def test_a_gather_by_itself_reads_only_its_elements():
    text = """HloModule m

ENTRY %main (a: f32[1000,8], b: s32[4,1]) -> f32[4,8] {
  %a = f32[1000,8]{1,0} parameter(0)
  %b = s32[4,1]{1,0} parameter(1)
  ROOT %rows = f32[4,8]{1,0} gather(%a, %b), slice_sizes={1,8}
}
"""
    program = parse(text)
    [(kernel, _)] = program.kernels()
    assert traffic(kernel, program, {"a": "f32[1000,8]", "b": "s32[4,1]"}) == 2 * 4 * 8 * 4 + 4 * 4
