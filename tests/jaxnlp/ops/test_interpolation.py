import numpy as np
import pytest
import torch

from jaxnlp.ops.interpolation import bicubic, cubic_weights


@pytest.mark.parametrize("side", [1, 2, 4, 7, 12])
def test_vectors_are_those_of_pytorch(side):
    grid = np.random.default_rng(0).normal(size=(5, 5, 3)).astype(np.float32)
    found = torch.nn.functional.interpolate(
        torch.tensor(grid).permute(2, 0, 1)[None], size=(side, side), mode="bicubic", align_corners=False
    )
    np.testing.assert_allclose(bicubic(grid, side), found[0].permute(1, 2, 0).numpy(), atol=1e-5)


def test_the_weights_of_a_value_sum_to_one_and_the_same_size_changes_nothing():
    np.testing.assert_allclose(cubic_weights(3, 8).sum(axis=1), 1.0)
    np.testing.assert_allclose(cubic_weights(6, 6), np.eye(6), atol=1e-12)
