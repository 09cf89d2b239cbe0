import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from jaxnlp import runs
from jaxnlp.convert import PretrainedError
from jaxnlp.runs import find_task, is_run, load, load_pretrained, load_run
from jaxnlp.saving.checkpoint_reading import DamagedCheckpointError, RunError, checksums, find_checkpoint
from jaxnlp.saving.serialization import to_json
from jaxnlp.tasks import Task, Trained
from jaxnlp.tasks.language_model import LanguageModel
from jaxnlp.text.characters import CharacterVocabulary
from tests.processors import sized
from train.config import update
from train.run.checkpoint_writing import Checkpoints
from train.run.folder import RunSpec
from train.run.progress import RunProgress


@pytest.fixture
def moved(finished_run, tmp_path):
    """The run under another name, to be changed as one likes."""
    return shutil.copytree(finished_run.folder, tmp_path / "moved here")


@pytest.fixture(scope="module")
def unscored_run(finished_run, tmp_path_factory):
    """A run with a moving average of its parameters and two checkpoints: one's loss is NaN, the other's unknown."""
    folder = tmp_path_factory.mktemp("unscored")
    for name in ("config.json", "processor.json"):
        shutil.copy(finished_run.folder / name, folder)
    state = jax.device_put(finished_run.state, jax.devices()[0])  # which saves faster than eight copies do
    processor = json.loads((folder / "processor.json").read_text())
    identity = update(finished_run.config, **{"data.few_lengths": False}).identity()
    with Checkpoints(folder, keep=2) as checkpoints:
        for step, metrics in ((5, {"score": math.nan, "loss": math.nan}), (70, None)):
            average = jax.tree.map(lambda x, step=step: np.asarray(x) + np.float32(step), state.params)
            checkpoints.save(
                state.replace(step=np.int32(step), ema=average),
                RunSpec({}, identity, processor, description="", fingerprint=""),
                RunProgress(state),
                metrics=metrics,
                data_state={},
            )
    return folder


def assert_equal_bits(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def is_noticed(folder, expected):
    """Whether reading step 2 fails; if it does not, it must give the expected parameters."""
    try:
        params = load_run(folder, checkpoint=2).params
    except DamagedCheckpointError:
        return True
    assert_equal_bits(params, expected)
    return False


def flip_byte(path, place):
    content = bytearray(path.read_bytes())
    content[place * len(content) // 2] ^= 0xFF  # place: 0 first, 1 middle
    path.write_bytes(content)


def test_a_moved_run_has_everything_that_inference_needs(finished_run, moved):
    run = load_run(str(moved), checkpoint="latest")
    assert (run.folder, run.step, run.name) == (moved, 2, "tiny")
    assert run.config == to_json(update(finished_run.config, **{"data.few_lengths": False}))
    assert run.task == LanguageModel()
    text = Path(finished_run.config.data.path).read_text()
    assert run.processor == CharacterVocabulary.of(text)
    assert run.model == finished_run.config.model.build(sized(len(set(text))))
    assert_equal_bits(run.params, finished_run.state.params)


def test_a_run_is_loaded_from_its_place_like_pretrained_weights(finished_run, tmp_path):
    found = load(finished_run.folder, checkpoint=2)
    assert isinstance(found, Trained)
    assert_equal_bits(found.params, finished_run.state.params)
    assert is_run(finished_run.folder)
    assert not is_run(tmp_path)
    with pytest.raises(ValueError, match="has no tensors to ignore, got"):
        load(finished_run.folder, ignore=("head.",))
    with pytest.raises(ValueError, match="is not a training run, so it has no checkpoint 3"):
        load(tmp_path, checkpoint=3)


def test_weights_with_a_folder_of_checkpoints_beside_them_are_no_run(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    assert is_run(tmp_path)
    (tmp_path / "model.safetensors").touch()
    assert not is_run(tmp_path)
    (tmp_path / "processor.json").touch()
    assert is_run(tmp_path)


@pytest.mark.parametrize("ignore", [["decoder."], ("decoder.",), "decoder."])
def test_tensors_to_ignore_are_a_list_a_tuple_or_one_name(ignore, tmp_path, monkeypatch):
    reader = SimpleNamespace(
        from_pretrained=lambda _, *, ignore: [name.startswith(ignore) for name in ("decoder.x", "x")]
    )
    monkeypatch.setattr(runs, "_pretrained_task", lambda _, *, whole: reader)
    assert load_pretrained(tmp_path, ignore=ignore) == [True, False]


def test_a_path_may_begin_with_the_home_folder(finished_run, moved, monkeypatch):
    monkeypatch.setenv("HOME", str(moved.parent))
    path = f"~/{moved.name}"
    assert is_run(path)
    assert find_task(path) == LanguageModel()
    for found in (load_run(path), load(Path(path))):
        assert found.folder == moved
    with pytest.raises(RunError, match="is a training run, not pretrained weights"):
        load_pretrained(path)
    with pytest.raises(RunError, match=f"runs inside it: .*{moved.name}"):
        load_pretrained("~")


def test_the_task_of_a_run_is_known_before_its_parameters_are_read(moved):
    shutil.rmtree(moved / "checkpoints")
    assert find_task(moved) == LanguageModel()


@pytest.mark.thorough
def test_a_run_of_many_devices_is_read_on_one_and_leaves_logging_to_the_user(finished_run):
    script = (
        "import jax, json, logging, sys; from jaxnlp.saving.checkpoint_reading import checksums; "
        "from jaxnlp.runs import load_run; "
        "run = load_run(sys.argv[1], checkpoint=2); "
        "print(json.dumps([jax.device_count(), checksums(run.params), logging.getLogger().handlers]))"
    )
    environment = os.environ | {"XLA_FLAGS": "", "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script, str(finished_run.folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads((finished_run.folder / "environment.json").read_text())["devices"] == 8
    assert json.loads(done.stdout) == [1, checksums(finished_run.state.params), []]


def test_a_run_of_a_gpu_s_attention_is_read_where_there_is_no_gpu(finished_run, moved):
    """How a model is computed is not part of what it is: the record of the checkpoint does not hold it."""
    path = moved / "config.json"
    config = json.loads(path.read_text())
    config["model"]["compute"]["attention"] = "cudnn"
    path.write_text(json.dumps(config))
    run = load_run(moved, checkpoint=2)
    assert run.model.config.compute.attention == "auto"
    assert_equal_bits(run.params, finished_run.state.params)


def test_the_best_checkpoint_has_the_lowest_validation_loss(finished_run):
    rows = [json.loads(line) for line in (finished_run.folder / "metrics.jsonl").read_text().splitlines()]
    losses = {row["step"]: row["loss"] for row in rows if row["split"] == "validation"}
    assert losses.keys() == {1, 2}
    best, newest = min(losses, key=losses.__getitem__), max(losses)
    assert best != newest
    assert find_checkpoint(finished_run.folder, "best").step == best
    assert find_checkpoint(finished_run.folder, "latest").step == newest
    assert load_run(finished_run.folder).step == best


def test_a_checkpoint_can_be_chosen_by_its_step(finished_run):
    first, second = (load_run(finished_run.folder, checkpoint=step) for step in (1, 2))
    assert (first.step, second.step) == (1, 2)
    assert_equal_bits(second.params, finished_run.state.params)
    assert not np.array_equal(first.params["positions"], second.params["positions"])
    assert find_checkpoint(finished_run.folder, np.arange(3)[1]).step == 1


@pytest.mark.parametrize("checkpoint", ["bets", "1", "", None, 1.0, True, False])
def test_other_words_than_best_and_latest_are_no_checkpoint(finished_run, checkpoint):
    with pytest.raises(ValueError, match=f"checkpoint must be best, latest or a step, got {checkpoint!r}"):
        load_run(finished_run.folder, checkpoint=checkpoint)


def test_where_no_checkpoint_has_a_validation_loss_the_newest_is_the_best(unscored_run):
    assert find_checkpoint(unscored_run, "best").step == find_checkpoint(unscored_run, "latest").step == 70


def test_a_moving_average_is_used_where_the_run_kept_one(unscored_run, finished_run):
    expected = jax.tree.map(lambda x: np.asarray(x) + np.float32(5), finished_run.state.params)
    assert_equal_bits(load_run(unscored_run, checkpoint=5).params, expected)


def test_a_checkpoint_that_was_not_finished_does_not_count(moved):
    unfinished = moved / "checkpoints" / "3.orbax-checkpoint-tmp"
    shutil.copytree(moved / "checkpoints" / "2", unfinished)
    assert find_checkpoint(moved, "latest").step == 2


def test_a_folder_without_config_is_no_run(moved):
    (moved / "config.json").unlink()
    for folder in (moved, moved / "nowhere"):
        with pytest.raises(RunError, match=re.escape(f"{folder} is not a training run (no config.json)")):
            load_run(folder)


@pytest.mark.parametrize("load", [load_run, load_pretrained])
@pytest.mark.parametrize(
    ("path", "got"), [(None, "NoneType"), (3, "int"), ([], "list"), (b"a", "bytes"), ("", "an empty text")]
)
def test_what_is_no_path_is_answered_with_what_was_expected(load, path, got):
    with pytest.raises(ValueError, match=rf"^expected the path of a .*folder.*, got {got}$"):
        load(path)


def test_a_web_address_and_a_file_are_no_folders_of_runs(moved):
    with pytest.raises(
        RunError, match=r"^https://a\.b/c is a web address; download the folder of the run, and give its"
    ):
        load_run("https://a.b/c")
    with pytest.raises(RunError, match=r"it is a file; give the run's folder$"):
        load_run(moved / "config.json")


def test_a_folder_of_runs_is_answered_with_their_names(moved):
    with pytest.raises(RunError, match=re.escape("(no config.json); runs inside it: moved here")):
        load_run(moved.parent)


def test_the_config_of_a_pretrained_model_is_no_run_s(moved):
    (moved / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(RunError, match=r"has pretrained weights, not .*load_pretrained, or train with --init-from"):
        load_run(moved)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "3", "{}", '{"model": null}', "\udcff"],
    ids=["empty", "half", "list", "number", "neither", "no task", "no UTF-8"],
)
def test_a_config_that_is_none_is_named(moved, content):
    (moved / "config.json").write_text(content, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(RunError, match=r"cannot be read|is not the config of a run"):
        load_run(moved)


def test_a_config_that_names_a_class_of_another_package_is_refused(moved):
    path = moved / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"task": {"type": "os:system"}}))
    for read in (load_run, find_task):
        with pytest.raises(RunError, match=r"os:system|config\.json was edited"):
            read(moved)


def test_two_tasks_for_the_same_pretrained_weights_are_refused(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    first, second = (type(name, (Task,), {"model_types": ("bert",)}) for name in ("First", "Second"))
    monkeypatch.setattr(runs, "every_task", lambda: [first, second])
    with pytest.raises(TypeError, match="First and Second both claim weights of bert"):
        load_pretrained(tmp_path)


def test_weights_of_an_unknown_model_are_answered_with_the_model_types_that_load(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "gptj", "architectures": ["GPTJForCausalLM"]}')
    with pytest.raises(PretrainedError, match=r"model_type must be one of .*bert, .*, got 'gptj'") as caught:
        load_pretrained(tmp_path)
    assert "ForQuestionAnswering" not in str(caught.value)


def test_a_run_without_processor_is_an_error_of_the_run(moved):
    (moved / "processor.json").unlink()
    with pytest.raises(RunError, match=re.escape(f"{moved / 'processor.json'} is missing")):
        load_run(moved)


@pytest.mark.parametrize("empty_folder", [False, True])
@pytest.mark.parametrize("checkpoint", ["best", "latest", 1])
def test_a_run_without_checkpoints_says_so(moved, checkpoint, empty_folder):
    shutil.rmtree(moved / "checkpoints")
    if empty_folder:
        (moved / "checkpoints").mkdir()
    with pytest.raises(RunError, match=re.escape(f"{moved} has no checkpoint yet")):
        load_run(moved, checkpoint=checkpoint)


def test_an_unknown_step_is_answered_with_those_there_are(finished_run):
    message = f"{finished_run.folder} has no checkpoint of step 7; it has those of 1, 2"
    with pytest.raises(RunError, match=re.escape(message)):
        load_run(finished_run.folder, checkpoint=7)


def test_a_flipped_byte_anywhere_never_changes_a_parameter_unnoticed(finished_run, moved):
    step = moved / "checkpoints" / "2"
    files = [p.relative_to(step) for part in ("params", "record") for p in (step / part).rglob("*") if p.is_file()]
    noticed = set()
    # When array_metadatas, which the checksums cover, does not fit, Orbax leaves coroutines that complain at exit.
    for file in [file for file in files if "array_metadatas" not in file.parts]:
        whole = (step / file).read_bytes()
        for place in (0, 1):
            flip_byte(step / file, place)
            if is_noticed(moved, finished_run.state.params):
                noticed.add((file, place))
            (step / file).write_bytes(whole)
    # The files that every load reads: arrays, what lists them, and the record itself.
    arrays = {file for file in files if file.parent.as_posix() == "params/d"}
    listings = {file for file in files if file.as_posix() in ("params/manifest.ocdbt", "params/_METADATA")}
    record = {file for file in files if file.as_posix() == "record/metadata"}
    assert arrays
    assert len(listings | record) == 3
    assert noticed >= {(file, place) for file in arrays | listings | record for place in (0, 1)}


def test_whole_arrays_that_are_not_those_saved_are_noticed(moved):
    first, second = (moved / "checkpoints" / step for step in ("1", "2"))
    shutil.rmtree(second / "params")
    shutil.copytree(first / "params", second / "params")
    message = (
        rf"params of checkpoint {re.escape(str(second))}: arrays that fail their checksum: \d+, first: \['blocks'\]"
    )
    with pytest.raises(DamagedCheckpointError, match=message):
        load_run(moved, checkpoint=2)
    assert load_run(moved, checkpoint=1).step == 1


@pytest.mark.parametrize("part", ["params", "record", "params/d", "params/manifest.ocdbt"])
def test_a_checkpoint_of_which_a_part_is_missing_is_damaged(moved, part):
    path = moved / "checkpoints" / "2" / part
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(DamagedCheckpointError, match=re.escape(str(moved / "checkpoints" / "2"))):
        load_run(moved, checkpoint=2)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [("config.json", '"width": 8', '"width": 16'), ("processor.json", '"a",', '"a", "b",')],
    ids=["model", "processor"],
)
def test_a_model_or_processor_that_the_parameters_do_not_fit_is_refused(moved, name, old, new):
    path = moved / name
    content = path.read_text()
    assert old in content
    path.write_text(content.replace(old, new))
    with pytest.raises(RunError, match=rf"{re.escape(str(path))} was edited since the run was trained"):
        load_run(moved, checkpoint=2)


def test_a_run_is_not_loaded_as_pretrained_weights(finished_run):
    with pytest.raises(RunError, match=r"is a training run, not pretrained weights; load it with jaxnlp\.load_run$"):
        load_pretrained(finished_run.folder)
