import chex
import numpy as np
import pytest

from jaxnlp.corpus import LazyBatch
from train.parallel.rows import accumulation_parts, pad_rows, places, rows_at, split_rows


def batch_of(rows, length=8):
    """With unequal numbers of tokens a row."""
    generator = np.random.default_rng(0)
    tokens = generator.integers(11, size=(rows, length + 1)).astype(np.int32)
    mask = np.arange(length) < generator.integers(1, length + 1, size=(rows, 1))
    return {"tokens": tokens[:, :-1], "targets": tokens[:, 1:], "loss_mask": mask}


def test_padding_rows_are_zeros_that_no_loss_counts():
    batch = batch_of(5)
    padded = pad_rows(batch, 8)
    assert {name: x.shape for name, x in padded.items()} == dict.fromkeys(batch, (8, 8))
    for name, x in padded.items():
        assert x.dtype == batch[name].dtype
        np.testing.assert_array_equal(x[:5], batch[name])
        assert not x[5:].any()


def test_batch_that_fits_is_not_padded():
    batch = batch_of(16)
    chex.assert_trees_all_equal(pad_rows(batch, 8), batch)


def test_batch_without_loss_mask_is_refused_with_what_it_has():
    with pytest.raises(ValueError, match="needs a loss_mask that excludes padding; it has only tokens, targets"):
        pad_rows({"tokens": np.zeros((3, 2)), "targets": np.zeros((3, 2))}, 2)


def test_rows_are_split_in_order():
    np.testing.assert_array_equal(split_rows({"x": np.arange(12).reshape(6, 2)}, 3)["x"][1], [[4, 5], [6, 7]])


@pytest.mark.parametrize("rows", [12, 13, 2])
def test_accumulation_parts_hold_the_same_examples_on_any_number_of_devices(rows):
    batch = {"x": np.arange(1, rows + 1), "loss_mask": np.ones((rows, 1), bool)}
    held = []
    for devices in (1, 2, 8):
        cut = accumulation_parts(batch, 3, devices)
        assert cut["x"].shape[0] == 3
        assert cut["x"].shape[1] % devices == 0
        held.append([part[part > 0].tolist() for part in cut["x"]])
    assert held[0] == held[1] == held[2]
    assert [example for part in held[0] for example in part] == list(range(1, rows + 1))


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("rows", [12, 13, 2])
def test_the_rows_of_all_processes_are_the_padded_batch_and_each_makes_only_its_own(rows, parts):
    batch, made = batch_of(rows), []

    def make(chosen):
        made.extend(chosen.tolist())
        return {name: x[chosen] for name, x in batch.items()}

    expected = pad_rows(batch, 8) if parts == 1 else accumulation_parts(batch, parts, 8)
    found = places(batch, parts, 8)
    np.testing.assert_array_equal(places(LazyBatch(rows, make), parts, 8), found)
    columns = np.array_split(np.arange(found.shape[-1]), 4)  # of four processes
    for source in (batch, LazyBatch(rows, make)):
        held = [rows_at(source, found[..., column]) for column in columns]
        for name, x in expected.items():
            joined = np.concatenate([part[name] for part in held], axis=found.ndim - 1)
            np.testing.assert_array_equal(joined, x)
            assert joined.dtype == x.dtype
    idle = sum(not (found[..., column] >= 0).any() for column in columns)  # these make a row for the shapes
    assert sorted(made) == sorted([*range(rows), *[0] * idle])
