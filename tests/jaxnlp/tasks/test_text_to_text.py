"""The loss is tested with its subclass in translation/test_init.py."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from jaxnlp.__main__ import main as jaxnlp_main
from jaxnlp.corpus import Split
from jaxnlp.models.attention_lstm import AttentionLSTMConfig
from jaxnlp.models.encoder_decoder import EncoderDecoderConfig
from jaxnlp.tasks.text_to_text import TextToText
from jaxnlp.text.subwords import Subwords
from jaxnlp.text.translation import TranslationProcessor
from tests.processors import translating
from tests.random_parameters import random_parameters


def test_the_objective_is_declared_where_it_differs_from_the_loss():
    assert "objective" not in TextToText().metrics(None, Split())
    assert "objective" in TextToText(label_smoothing=0.1).metrics(None, Split())
    assert "objective" in TextToText(r_drop=5.0).metrics(None, Split())
    with pytest.raises(ValueError, match=r"task\.label_smoothing must be in \[0, 1\), got -0\.1"):
        TextToText(label_smoothing=-0.1)


@pytest.mark.parametrize("size", [275, 290])
def test_shared_embeddings_of_two_vocabularies_are_refused(tmp_path, capsys, size):
    """Of equal size, and of two sizes: there are 20 distinct characters in the sources, and 10 in the targets."""
    (tmp_path / "a").write_text("\n".join(chr(97 + n % 20) + chr(97 + n // 20) for n in range(100)))
    (tmp_path / "b").write_text("\n".join(chr(110 + n % 10) for n in range(100)))
    command = ["train", "translation_text_files", "--data.train", str(tmp_path / "a"), str(tmp_path / "b")]
    command += ["--data.vocabulary-size", str(size), "--workdir", str(tmp_path / "run"), "--data.no-shared-vocabulary"]
    assert jaxnlp_main(command) == 2
    message = "error: model.embeddings shared needs one vocabulary of source and target, but the data has two; set "
    assert capsys.readouterr().err == f"{message}--model.embeddings tied\n"


def test_shared_embeddings_need_one_vocabulary_and_others_do_not():
    one, other = (Subwords("words", (word,)) for word in ("sea", "man"))
    shared, two = (TranslationProcessor(one, target) for target in (one, other))
    for kind in (EncoderDecoderConfig, AttentionLSTMConfig):
        for embeddings in ("separate", "tied"):
            kind(embeddings=embeddings).check(two)
        kind(embeddings="shared").check(shared)
        with pytest.raises(ValueError, match="shared needs one vocabulary"):
            kind(embeddings="shared").check(two)


def _small_batch(rows=3):
    rng = np.random.default_rng(0)
    batch = {name: rng.integers(3, 11, (rows, 6), np.int32) for name in ("source", "inputs", "targets")}
    batch |= {"source_mask": np.arange(6)[None] < np.array([[6], [2], [4]])}
    return batch | {"loss_mask": np.arange(6)[None] < np.array([[4], [3], [6]])}


R_DROP = EncoderDecoderConfig(num_layers=1, num_heads=2, width=8, context_length=8, dropout_rate=0.3)


def losses_of(config):
    """The loss without and with R-drop, and parameters."""
    module, batch = config.build(translating(11)), _small_batch()
    losses = (jax.jit(TextToText(r_drop=weight).objective(module, None).loss) for weight in (0.0, 3.0))
    return *losses, random_parameters(module, batch["source"], batch["inputs"])


@pytest.mark.thorough
def test_r_drop_adds_the_divergence_of_two_readings():
    """Row 2 n and row 2 n + 1 of a doubled batch have different masks."""
    batch, key = _small_batch(), jax.random.key(1)
    plain, dropped, params = losses_of(R_DROP)
    doubled = {name: jnp.repeat(x, 2, axis=0) for name, x in batch.items()}
    expected, (losses, _) = plain(params, doubled, key, ())
    apply = jax.jit(functools.partial(R_DROP.build(translating(11)).apply, deterministic=False))
    logits = apply({"params": params}, *(doubled[name] for name in R_DROP.reads), rngs={"dropout": key})
    p, q = (scipy.special.softmax(np.asarray(logits[start::2], np.float64), axis=-1) for start in (0, 1))
    divergence = (scipy.stats.entropy(p, q, axis=-1) + scipy.stats.entropy(q, p, axis=-1)) / 2.0
    between = divergence[batch["loss_mask"]].mean()
    assert between > 1e-3
    found, (metrics, _) = dropped(params, batch, key, ())
    np.testing.assert_allclose(found, expected + 1.5 * between, rtol=1e-4)
    np.testing.assert_allclose(metrics["loss"], np.divide(losses["loss"], 2.0), rtol=1e-4)
    np.testing.assert_allclose(np.divide(*metrics["objective"]), found, rtol=1e-6)


@pytest.mark.thorough
def test_r_drop_adds_nothing_without_dropout_and_in_evaluation():
    batch, key = _small_batch(), jax.random.key(1)
    plain, dropped, params = losses_of(R_DROP)
    np.testing.assert_array_equal(*(loss(params, batch, None, ())[0] for loss in (plain, dropped)))
    plain, dropped, params = losses_of(dataclasses.replace(R_DROP, dropout_rate=0.0))
    np.testing.assert_allclose(*(loss(params, batch, key, ())[0] for loss in (plain, dropped)), rtol=1e-6)


@pytest.mark.thorough
def test_progress_is_the_number_of_source_and_target_tokens():
    model = EncoderDecoderConfig(num_layers=1, num_heads=2, width=8, context_length=8).build(translating(11))
    batch = {name: np.ones((2, 6), np.int32) for name in ("source", "inputs", "targets")}
    batch |= {"source_mask": np.arange(6)[None] < np.array([[6], [2]])}
    batch |= {"loss_mask": np.arange(6)[None] < np.array([[4], [3]])}
    params = random_parameters(model, batch["source"], batch["inputs"])
    objective = TextToText().objective(model, None)
    _, (metrics, _) = jax.jit(objective.loss)(params, batch, jax.random.key(1), ())
    assert metrics[objective.progress] == (24.0, 15.0)
    assert TextToText().metrics(None, Split())[objective.progress].of == "tokens"
