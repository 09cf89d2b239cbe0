"""How many programs training compiles: one for each length of batches, however many batches there are."""

import threading

import jax
import numpy as np
import pytest

from data.translation import ParallelText
from jaxnlp.models.encoder_decoder import EncoderDecoderConfig
from jaxnlp.tasks.text_to_text import TextToText
from tests.guards import test_families as guards
from tests.jaxnlp.tasks import test_init
from train.compile_ahead import AheadCompiler
from train.config import update
from train.evaluation.validation import Validation
from train.parallel import make_parallel
from train.run.checkpoint_writing import Checkpoints
from train.run.init_from import begin
from train.run.setup import set_up

files = guards.files

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


@pytest.fixture
def translation(tiny_config, pairs):
    """Makes configs of runs on pairs, with these changes."""

    def make(**changes):
        small = {"batch_size": 16, "batch_tokens": 96, "vocabulary_size": 20}
        data = ParallelText(train=pairs, lengths=LENGTHS, subwords="words", **small)
        model = EncoderDecoderConfig(num_layers=1, num_heads=1, width=4, context_length=16, embeddings="shared")
        return tiny_config(data=data, model=model, task=TextToText(), **changes)

    return make


@pytest.fixture
def compiled_in(monkeypatch):
    """The names of the threads that have compiled a program since then."""
    names, listening = [], True

    def listen(event, *_, **__):
        if listening and event == "/jax/core/compile/backend_compile_duration":
            names.append(threading.current_thread().name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield names
    listening = False


@pytest.mark.thorough  # what JAX forgets here is compiled again for the tests that follow
@pytest.mark.parametrize("task", test_init.CONFIGS)
def test_nothing_is_compiled_after_the_start_of_a_run_with_evaluations(
    task, files, tmp_path, quick_fit, compiled_in, monkeypatch
):
    def compile_ahead(validation, *arguments):
        start(validation, *arguments)
        validation._ahead.wait()
        compiled_in.clear()

    start, intervals = Validation.compile_ahead, ("evaluate_every_steps", "checkpoint_every_steps")
    config = update(test_init.CONFIGS[task](files), total_steps=6, log_every_steps=2, **dict.fromkeys(intervals, 3))
    monkeypatch.setattr(Validation, "compile_ahead", compile_ahead)
    jax.clear_caches()  # programs of earlier tests
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        quick_fit(config, tmp_path / "run")
    assert compiled_in == []


@pytest.mark.thorough
def test_a_run_compiles_all_its_programs_at_its_start_in_threads(
    translation, tmp_path, quick_fit, after_step, compiled_in, loud
):
    config = translation(total_steps=40, evaluate_every_steps=20, log_every_steps=5, checkpoint_every_steps=20)
    with after_step(2, compiled_in.clear):
        quick_fit(config, tmp_path / "run", console=loud)
    assert threading.main_thread().name not in compiled_in
    # A step for each length, the evaluation of the few pairs of validation, and the check of the parameters.
    assert f"compiled {len(LENGTHS) + 2} programs in " in loud.file.getvalue()


@pytest.mark.thorough
def test_the_step_is_compiled_once_and_begun_before_the_initial_state(tiny_config, tmp_path, quick_fit, monkeypatch):
    order, programs = [], []
    compile_program, resume = AheadCompiler.compile, Checkpoints.resume

    def compiled(ahead, function, *arguments, **options):
        order.append("program")
        programs.append(compile_program(ahead, function, *arguments, **options))
        return programs[-1]

    def resumed(*arguments):
        order.append("state")
        return resume(*arguments)

    monkeypatch.setattr(AheadCompiler, "compile", compiled)
    monkeypatch.setattr(Checkpoints, "resume", resumed)
    config = tiny_config(total_steps=3)
    quick_fit(config, tmp_path / "run")
    assert order[:3] == ["program", "state", "program"]
    assert programs[0] is programs[1]
    begun = len(order)
    quick_fit(update(config, total_steps=6), tmp_path / "run", extend=True)  # it has no initial state
    assert order[begun : begun + 2] == ["state", "program"]


@pytest.mark.thorough
def test_an_epoch_of_pairs_compiles_at_most_one_program_for_each_length(translation):
    setup = set_up(begin(translation()))
    layout = make_parallel("jit", jax.devices()[:1])
    step = layout.compile_train(setup.step, setup.abstract_state)
    state = layout.initialise(setup.initial_state, setup.given)
    batches, shapes = iter(setup.corpus.train), []
    while (batch := next(batches)) and batches.get_state()["epoch"] == 0:
        shapes.append(batch["source"].shape)
        state, _ = step(state, layout.put_batch(batch, 1))
    assert len(shapes) > 4 * len(LENGTHS)
    assert {length for _, length in shapes} == set(LENGTHS)
    assert step._cache_size() == len(LENGTHS)
    assert sorted({batch["source"].shape for batch in setup.corpus.shapes.train}) == sorted(set(shapes))
