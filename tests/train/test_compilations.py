"""How many programs training compiles: one for each length of batches, however many batches there are."""

import jax
import numpy as np
import pytest

from data.translation import ParallelText
from jaxnlp.models.encoder_decoder import EncoderDecoderConfig
from jaxnlp.tasks.text_to_text import TextToText
from train.parallel import JitParallel
from train.run.begin import begin
from train.run.setup import set_up

LENGTHS = (8, 16)


@pytest.fixture
def pairs(tmp_path):
    """Files of pairs of all lengths, some longer than the last length."""
    generator = np.random.default_rng(0)
    sizes = generator.integers(1, 18, 150)
    for name in ("source", "target"):
        lines = [" ".join(generator.choice(["the", "old", "man", "and", "a", "sea"], size)) for size in sizes]
        (tmp_path / name).write_text("\n".join(lines))
    return (str(tmp_path / "source"), str(tmp_path / "target"))


@pytest.mark.thorough
def test_an_epoch_of_pairs_compiles_at_most_one_program_for_each_length(tiny_config, pairs):
    small = {"batch_size": 16, "batch_tokens": 96, "vocabulary_size": 20}
    data = ParallelText(train=pairs, lengths=LENGTHS, subwords="words", **small)
    model = EncoderDecoderConfig(num_layers=1, num_heads=1, width=4, context_length=16, embeddings="shared")
    setup = set_up(begin(tiny_config(data=data, model=model, task=TextToText())))
    layout = JitParallel(jax.devices()[:1])
    step = layout.compile_train(setup.step, setup.abstract_state)
    state = layout.initialise(setup.initial_state, setup.given)
    batches, shapes = iter(setup.corpus.train), []
    while (batch := next(batches)) and batches.get_state()["epoch"] == 0:
        shapes.append(batch["source"].shape)
        state, _ = step(state, layout.put_batch(batch, 1))
    assert len(shapes) > 4 * len(LENGTHS)
    assert {length for _, length in shapes} == set(LENGTHS)
    assert step._cache_size() == len(LENGTHS)
