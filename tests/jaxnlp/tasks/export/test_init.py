"""The verb `export` with each format."""

import json

import pytest

from jaxnlp.tasks import every_task
from jaxnlp.tasks.export import ExportCommand
from tests.jaxnlp.tasks.export.models import MODELS, trained_of


def test_every_task_can_be_exported():
    for task in every_task():
        assert issubclass(task().commands["export"], ExportCommand)
        assert "exports" in {name for base in task.__mro__[:-1] for name in vars(base)}
    assert {task for task, _, _ in MODELS.values()} == {*every_task()}


@pytest.mark.parametrize("name", ["lstm", "cnn", "crf", "transformer", "recurrent_spans"])
def test_models_that_transformers_does_not_have_name_the_other_format(tmp_path, name):
    trained = trained_of(name)
    export = trained.task.commands["export"]
    message = f"^{name}: Transformers has no class for its model, a {type(trained.model).__name__}; give --format jax$"
    with pytest.raises(ValueError, match=message):
        export(tmp_path / "out")(trained)
    assert not (tmp_path / "out").exists()


def test_the_folder_says_what_it_has(tmp_path, capsys):
    ExportCommand(tmp_path / "out", format="jax")(trained_of("crf"))
    shown = capsys.readouterr().out
    assert shown.startswith(f"{tmp_path / 'out' / 'load.py'} loads it with jax, numpy and flatbuffers\ntag(words, ")
    assert shown.endswith("; T is at most 16\n")
    described = json.loads((tmp_path / "out" / "export.json").read_text(encoding="utf-8"))
    assert (described["version"], described["platforms"]) == (1, ["cpu", "cuda", "tpu"])
    tag = described["functions"]["tag"]
    assert tag["inputs"]["words"] == "int32[B, T]"
    assert tag["outputs"]["confidence"] == "float32[B, T]"
    assert described["functions"]["score"]["outputs"]["scores"] == "float32[B, T, 3]"
    assert tag["labels"] == ["O", "B-X", "I-X"]
    assert tag["limits"] == {"T": [2, 16]}
    processor = json.loads((tmp_path / "out" / "processor.json").read_text(encoding="utf-8"))
    assert processor["inputs"]["words"] == ["dogs", "rome", "see", "the"]
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        *("export.json", "load.py", "params.safetensors", "processor.json", "score.jax", "tag.jax")
    }


def test_a_folder_with_files_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="is not empty"):
        ExportCommand(tmp_path, format="jax")(trained_of("crf"))
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
