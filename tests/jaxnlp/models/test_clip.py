import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.images.processor import ImageProcessor
from jaxnlp.models import parameter_shapes
from jaxnlp.models.clip import CLIP, INITIAL_SCALE, CLIPConfig, TextEncoder, TextEncoderConfig
from jaxnlp.models.vit import ViTConfig
from jaxnlp.nn.compute import EXACT
from tests.random_parameters import random_parameters

END = 9
SHAPE = {"num_layers": 1, "num_heads": 2, "width": 8, "compute": EXACT}
TEXT = TextEncoderConfig(context_length=6, projection_width=4, end_id=END, **SHAPE)
IMAGE = ViTConfig(patch=4, projection_width=4, embedding_norm=True, stem_bias=False, activation="quick_gelu", **SHAPE)
CONFIG = CLIPConfig(TEXT, IMAGE, compute=EXACT)
IMAGES = ImageProcessor(8, 3, (0.5,) * 3, (0.5,) * 3, ())
MODEL = CLIP(CONFIG, 10, 8, IMAGES.mean, IMAGES.stddev)
TOKENS = np.array([[1, 2, 3, END, 0, 0], [4, END, 5, END, 8, 7], [1, 2, 3, END, 8, 4]], np.int32)
PIXELS = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def params():
    return random_parameters(MODEL, TOKENS, PIXELS)


@pytest.fixture(scope="module")
def vectors(params):
    model = TextEncoder(TEXT, 10)
    apply = jax.jit(lambda tokens: model.apply({"params": params["text"]}, tokens))
    return lambda tokens: np.asarray(apply(np.asarray(tokens, np.int32)))


def test_the_vector_of_a_text_reads_the_tokens_up_to_its_first_end(vectors):
    found = vectors(TOKENS)
    assert (found.shape, found.dtype) == ((3, 4), np.float32)
    np.testing.assert_allclose(found[0], found[2], atol=1e-6)
    for place, changes in enumerate([True, True, False, False, False, False]):
        other = TOKENS[1:2].copy()
        other[0, place] = 6
        # Without its first end, the text ends at the next one.
        assert np.allclose(vectors(np.repeat(other, 3, axis=0))[0], found[1], atol=1e-6) != changes


@pytest.mark.thorough
def test_without_an_end_id_the_vector_is_that_of_the_highest_id(params, vectors):
    model = TextEncoder(dataclasses.replace(TEXT, end_id=None), 10)
    tokens = np.array([[1, 2, 3, 7, 0, 0], [4, 8, 5, 8, 0, 7], [1, 2, 3, 4, 5, 6]], np.int32)
    found = model.apply({"params": params["text"]}, tokens)
    marked = np.where(tokens == tokens.max(axis=1, keepdims=True), tokens, 0)
    expected = []
    for row, text in zip(tokens, marked, strict=True):
        other = dataclasses.replace(TEXT, end_id=int(text.max()))
        expected.append(TextEncoder(other, 10).apply({"params": params["text"]}, row[None])[0])
    np.testing.assert_allclose(found, np.stack(expected), atol=1e-6)


@pytest.mark.thorough
def test_logits_are_cosines_times_a_factor(params):
    def both(tokens, pixels):
        logits = MODEL.apply({"params": params}, tokens, pixels)
        texts = MODEL.apply({"params": params}, tokens, method="embed_texts")
        return logits, texts, MODEL.apply({"params": params}, pixels, method="embed_images")

    logits, texts, images = map(np.asarray, jax.jit(both)(TOKENS, PIXELS))
    cosines = images @ texts.T / np.linalg.norm(images, axis=1)[:, None] / np.linalg.norm(texts, axis=1)[None]
    np.testing.assert_allclose(logits, cosines * np.exp(params["logit_scale"]), rtol=1e-4)
    assert logits.shape == (2, 3)
    assert (logits.dtype, np.unique(logits.round(4)).size) == (np.float32, 4)  # two texts are equal


def test_every_parameter_is_described_and_the_initial_factor_is_that_of_the_paper():
    shapes = parameter_shapes(MODEL, TOKENS, PIXELS)
    for path, leaf in jax.tree_util.tree_leaves_with_path(shapes):
        names = tuple(part.key for part in path)
        entry = CONFIG.parameter(names)
        assert len(entry.axes) == leaf.ndim, names
        assert entry.matrix == names[-1].endswith("kernel"), names
    for unknown in (
        ("unknown",),
        ("text", "unknown"),
        ("image", "pooler", "kernel"),
        ("text", "decoder", "head", "kernel"),
        (),
    ):
        with pytest.raises(KeyError, match="no parameter"):
            CONFIG.parameter(unknown)
    assert np.exp(INITIAL_SCALE) == pytest.approx(1 / 0.07)


def test_both_encoders_compute_as_the_config_says():
    config = dataclasses.replace(CONFIG, compute=dataclasses.replace(EXACT, dtype="bfloat16"))
    assert [part.compute.dtype for part in (config.text, config.image)] == ["bfloat16"] * 2
    assert CONFIG.text == TEXT


def test_configs_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"projection_width must be equal, got vectors of 4 and 8"):
        CLIPConfig(TEXT, dataclasses.replace(IMAGE, projection_width=None))
    with pytest.raises(ValueError, match=r"model.tie_embeddings must be True: an encoder of texts has no output layer"):
        dataclasses.replace(TEXT, tie_embeddings=False)
    with pytest.raises(ValueError, match=r"a sequence of 7 tokens exceeds the context of 6"):
        jax.eval_shape(TextEncoder(TEXT, 10).init, jax.random.key(0), jnp.zeros((1, 7), jnp.int32))
