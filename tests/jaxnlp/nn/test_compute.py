import pytest

from jaxnlp.nn import compute
from jaxnlp.nn.compute import Compute, TransformerCompute
from jaxnlp.nn.recurrent import RecurrentCompute


@pytest.mark.parametrize(("fast", "expected"), [(True, "bfloat16"), (False, None)])
def test_auto_is_bfloat16_where_the_processor_is_faster_with_it(monkeypatch, fast, expected):
    monkeypatch.setattr(
        compute, "operand_dtype", lambda name: ("bfloat16" if fast else None) if name == "auto" else name
    )
    assert Compute(matmul_dtype="auto").operand_dtype == expected
    assert Compute(matmul_dtype="bfloat16").operand_dtype == "bfloat16"
    assert Compute().operand_dtype is None


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (Compute, {"dtype": "float16"}, "model.compute.dtype must be one of float32, bfloat16, got 'float16'"),
        (Compute, {"matmul_dtype": "float32"}, "model.compute.matmul_dtype"),
        (TransformerCompute, {"attention": "pallas"}, "model.compute.attention"),
        (RecurrentCompute, {"recurrence": "cuda"}, "model.compute.recurrence"),
    ],
)
def test_values_that_are_not_choices_are_refused_by_name(kind, fields, message):
    with pytest.raises(ValueError, match=message):
        kind(**fields)
