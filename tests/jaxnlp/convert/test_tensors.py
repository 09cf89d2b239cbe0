import numpy as np
import pytest

from jaxnlp.convert.tensors import (
    WeightsError,
    by_short_name,
    dense,
    join_all,
    kernel,
    norm,
    ones,
    plain,
    prefix_of,
    split_all,
)


def numbered(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_layers_side_by_side_are_one_kernel_with_axes_and_come_apart_again():
    entries = list(dense("t", ("qkv",), ("q", "k"), 2, (2, 3, 1)))
    held = {"q.weight": numbered(3, 2), "k.weight": -numbered(3, 2), "q.bias": numbered(3), "k.bias": -numbered(3)}
    tree = join_all({name: (name, x) for name, x in held.items()}, entries, {}, "T")
    np.testing.assert_array_equal(tree["t"]["qkv"]["kernel"][:, 1, :, 0], held["k.weight"].T)
    np.testing.assert_array_equal(tree["t"]["qkv"]["bias"][0, :, 0], held["q.bias"])
    found = split_all(tree, entries)
    assert found.keys() == held.keys()
    for name, array in held.items():
        np.testing.assert_array_equal(found[name], array)


def test_parts_of_one_tensor_are_several_parameters_and_come_together_again():
    entries = [kernel("t", (name,), ("both",), 2, (3,), part=part, parts=2) for part, name in enumerate(("a", "b"))]
    held = numbered(6, 2)
    tree = join_all({"both.weight": ("both.weight", held)}, entries, {}, "T")
    np.testing.assert_array_equal(tree["t"]["a"], held[:3].T)
    np.testing.assert_array_equal(tree["t"]["b"], held[3:].T)
    np.testing.assert_array_equal(split_all(tree, entries)["both.weight"], held)
    with pytest.raises(WeightsError, match=r"a gives both.weight \(3, 2\), expected \(6, 2\)"):
        split_all(tree, entries[:1])


def test_a_parameter_that_no_tensor_holds_is_ones():
    entry = ones("t", ("scale",), 2)
    tree = join_all({}, [entry], {}, "T")
    np.testing.assert_array_equal(tree["t"]["scale"], [1.0, 1.0])
    assert split_all(tree, [entry]) == {}


def test_a_kernel_that_is_not_transposed_keeps_its_rows():
    entry = kernel("t", ("up", "kernel"), ("up",), 2, (3,), transposed=False)
    assert entry.shapes == ((2, 3),)
    np.testing.assert_array_equal(entry.join([numbered(2, 3)]), numbered(2, 3))


def test_entries_with_an_index_are_stacked_in_order():
    entries = [entry for layer in (0, 1) for entry in norm("t", ("norm",), f"n{layer}", 2, layer)]
    held = {f"n{layer}.{kind}": np.full(2, layer, np.float32) for layer in (1, 0) for kind in ("weight", "bias")}
    tree = join_all({name: (name, x) for name, x in held.items()}, entries, {}, "T")
    np.testing.assert_array_equal(tree["t"]["norm"]["scale"], [[0.0, 0.0], [1.0, 1.0]])


def test_names_of_tensors_are_shortened_and_two_names_of_one_tensor_are_refused():
    assert prefix_of(["a.w", "b"], ("", "a."), "w", "T") == "a."
    with pytest.raises(WeightsError, match=r"not a T checkpoint: none of its 1 tensors is called w"):
        prefix_of(["b"], ("", "a."), "w", "T")
    tensors = {"a.w": numbered(1), "mask": numbered(1)}
    held = by_short_name(tensors, lambda name: None if name == "mask" else name.removeprefix("a."), "T")
    assert list(held) == ["w"]
    with pytest.raises(WeightsError, match=r"a\.w and w are the same tensor of T; remove one"):
        by_short_name(tensors | {"w": numbered(1)}, lambda name: name.removeprefix("a."), "T")


def test_every_tensor_that_does_not_fit_is_listed():
    entries = [plain("t", (name,), name, 2) for name in ("missing", "shape", "whole", "nan")]
    tensors = {"shape": numbered(3), "whole": np.zeros(2, int), "nan": np.full(2, np.nan), "copy": numbered(2)}
    tensors |= {"other.x": numbered(1)}
    held = {name: (name, x) for name, x in tensors.items()}
    with pytest.raises(WeightsError) as caught:
        join_all(held, entries, {"copy": "shape"}, "T")
    text = str(caught.value)
    assert "tensors that do not fit this T: 6" in text
    for part in (
        "missing: missing (2,)",
        "shape (3,), expected (2,)",
        "whole holds int64",
        "nan holds infinity or NaN",
    ):
        assert part in text
    assert "copy is not tied: it differs from shape" in text
    assert "--ignore other." in text


def test_parameters_of_other_shapes_are_named():
    entries = [plain("t", ("w",), "w", 2)]
    with pytest.raises(WeightsError, match=r"w gives w \(3,\), expected \(2,\)"):
        split_all({"t": {"w": numbered(3)}}, entries)
    with pytest.raises(WeightsError, match=r"no parameter w that fits the config"):
        split_all({"t": {}}, entries)
