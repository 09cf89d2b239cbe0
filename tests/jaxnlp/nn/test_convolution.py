import jax
import numpy as np

from jaxnlp.nn.convolution import Convolution

BATCH, POSITIONS, WIDTH, WINDOW, MAPS = 3, 5, 4, 3, 6


def test_features_are_the_maxima_over_the_windows_that_have_a_word():
    generator = np.random.default_rng(0)
    mask = np.arange(POSITIONS) < np.array([[5], [2], [0]])
    x = generator.normal(size=(BATCH, POSITIONS, WIDTH)).astype(np.float32) * mask[:, :, None]
    kernel, bias = generator.normal(size=(WINDOW * WIDTH, MAPS)), generator.normal(size=MAPS)
    params = jax.tree.map(np.float32, {"kernel": kernel, "bias": bias})
    found = jax.jit(Convolution(WINDOW, MAPS).apply)({"params": params}, x, mask)
    expected = np.zeros((BATCH, MAPS))
    for row in range(2):
        padded = np.pad(x[row], [(WINDOW - 1, WINDOW - 1), (0, 0)])
        windows = [padded[start : start + WINDOW].reshape(-1) for start in range(mask[row].sum() + WINDOW - 1)]
        expected[row] = np.maximum(np.stack(windows) @ kernel + bias, 0.0).max(axis=0)
    np.testing.assert_allclose(found, expected, atol=1e-5)
