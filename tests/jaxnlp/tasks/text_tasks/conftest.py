"""A run of text tasks with four parts, and ways to write runs and folders of weights without training."""

from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import optax
import pytest

from data.minbert import LABELS
from jaxnlp.convert.pretrained import Pretrained, save_pretrained
from jaxnlp.models.bert import BertConfig
from jaxnlp.models.text_tasks import TextTasksConfig
from jaxnlp.runs import load_run
from jaxnlp.serialization import processor_to_json, to_json
from jaxnlp.tasks import Trained
from jaxnlp.tasks.text_tasks import TextTasks
from jaxnlp.text.labels import Labels
from jaxnlp.text.text_processor import TextProcessor
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from train import run_folder
from train.checkpoint import Checkpoints
from train.step import init_state

WORDS = ["the", "cat", "sat", "##s", "on", "mat", "dog", "ate", "a", "big", "fish", "."]
MAX_LENGTH = 40


@pytest.fixture(autouse=True)
def compiled_programs_in_the_folder_of_the_tests(monkeypatch: pytest.MonkeyPatch, compiled_programs: Path) -> None:
    """Commands keep compiled programs where all tests here do."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(compiled_programs))


MakeTrained = Callable[..., Trained]
SaveRun = Callable[[Path, Trained], Trained]


@pytest.fixture(scope="session")
def make_trained() -> MakeTrained:
    """Makes a model of text tasks: `make_trained(("sst",), max_length=6, pooling="cls")`.

    Its parameters are larger than initial ones, so that every parameter matters.
    """

    def make(parts: tuple[str | tuple[str, Labels], ...] = tuple(LABELS), max_length: int = MAX_LENGTH, **changes):
        vocabulary = WordPieceVocabulary.of_pieces([*SPECIAL, *WORDS])
        labels = tuple((part, LABELS[part]) if isinstance(part, str) else part for part in parts)
        encoder = BertConfig(num_layers=2, num_heads=2, width=8, max_positions=MAX_LENGTH)
        config = TextTasksConfig(**{"encoder": encoder, "pooling": "mean"} | changes)
        processor = TextProcessor(vocabulary, max_length, labels)
        task = TextTasks()
        model, inputs = task.build(config, processor)
        shapes = jax.eval_shape(model.init, jax.random.key(0), *inputs)["params"]
        draw = np.random.default_rng(0)
        params = jax.tree_util.tree_map_with_path(
            lambda path, x: np.float32(path[-1].key == "scale") + 0.3 * draw.standard_normal(x.shape, np.float32),
            shapes,
        )
        return Trained(task, model, params, processor, name="tiny")

    return make


@pytest.fixture(scope="session")
def save_run() -> SaveRun:
    """Writes the folder of a run of one step, and returns the run as it is read."""

    def save(folder: Path, trained: Trained) -> Trained:
        config = {"recipe": "tiny", "task": to_json(trained.task), "model": to_json(trained.model.config)}
        processor = processor_to_json(trained.processor)
        run_folder.create(folder, config, processor)
        state = init_state(trained.params, optax.sgd(0.1), jax.random.key(0), ema=False).replace(step=np.int32(1))
        with Checkpoints(folder, keep=1) as checkpoints:
            checkpoints.save(
                state,
                config=config,
                processor=processor,
                description="",
                fingerprint="",
                train_seconds=0.0,
                metrics=None,
                losses=[],
                data_state={},
            )
        return load_run(folder)

    return save


@pytest.fixture(scope="session")
def trained(make_trained: MakeTrained, save_run: SaveRun, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A run with all parts of the minBERT project; its folder must not be changed."""
    return save_run(tmp_path_factory.mktemp("text_tasks") / "run", make_trained())


@pytest.fixture
def save_bert(trained: Trained) -> Callable[..., Path]:
    """Writes the run's encoder as Transformers writes it: `save_bert(folder, pooling="cls")`."""

    def save(folder: Path, **changes) -> Path:
        encoder = jax.tree.map(np.asarray, dict(trained.params["encoder"]))
        config = trained.model.config.encoder
        save_pretrained(folder, Pretrained(config, encoder, None, trained.processor.vocabulary, **changes))
        return folder

    return save
