import json
import re
import shutil

import numpy as np
import orbax.checkpoint as ocp
import pytest

from jaxnlp.saving.checkpoint_reading import (
    DamagedCheckpointError,
    Record,
    RunError,
    check_arrays,
    checkpoint_steps,
    checksums,
    find_checkpoint,
    json_digest,
    read_checkpoint,
    read_record,
    read_run_files,
)

MODEL = {"width": 8, "encoder": {"compute": 1}}
IDENTITY = {"recipe": "r", "seed": 1, "total_steps": 3, "data": {"keep_checkpoints": 1, "compute": 1}, "model": MODEL}
CONFIG = IDENTITY | {"log_every_steps": 5, "model": MODEL | {"compute": {"remat": False}}}
PROCESSOR = {"type": "a:B", "characters": ["a", "b"]}


def record(step, metrics=None):
    return Record(step, IDENTITY, json_digest(PROCESSOR), "text", "f", 1.5, metrics, [2.0], {"next": step}, {}, [])


def write(folder, step, metrics=None, *, content=None):
    """A checkpoint that has only a record."""
    place = (folder / "checkpoints" / str(step)).absolute()
    content = record(step, metrics).to_json() if content is None else content
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
        checkpointer.save(place, args=ocp.args.Composite(record=ocp.args.JsonSave(content)))


def score(value, loss=1.0):
    return {"score": value, "loss": loss}


def test_a_record_reads_back_as_it_was_written(tmp_path):
    write(tmp_path, 3, score(0.1))
    assert read_record(tmp_path, 3) == record(3, score(0.1))


@pytest.mark.parametrize("field", ["identity", "processor_digest", "fingerprint", "metrics", "data_state", "losses"])
def test_any_field_of_a_record_that_was_edited_is_noticed(tmp_path, field):
    write(tmp_path, 3, content=record(3).to_json() | {field: "edited"})
    with pytest.raises(DamagedCheckpointError, match="fails its checksum"):
        read_record(tmp_path, 3)


@pytest.mark.parametrize("content", ["3", '["a"]', "null"])
def test_a_record_that_is_no_object_is_damaged(tmp_path, content):
    write(tmp_path, 3)
    (tmp_path / "checkpoints" / "3" / "record" / "metadata").write_text(content)
    with pytest.raises(DamagedCheckpointError, match="fails its checksum"):
        read_record(tmp_path, 3)


def test_a_record_of_another_step_is_refused(tmp_path):
    write(tmp_path, 6, content=record(4).to_json())
    with pytest.raises(DamagedCheckpointError, match="is a copied or renamed checkpoint of step 4"):
        read_record(tmp_path, 6)


def test_the_best_checkpoint_has_the_highest_score_then_the_lowest_loss(tmp_path):
    nan = float("nan")
    for step, metrics in enumerate((score(0.5, 2.0), score(0.5, nan), score(0.5, 1.0), score(nan, 0.0), None), 1):
        write(tmp_path, step, metrics)
    assert checkpoint_steps(tmp_path) == [1, 2, 3, 4, 5]
    assert [find_checkpoint(tmp_path, which).step for which in ("best", "latest", 2)] == [3, 5, 2]
    with pytest.raises(RunError, match="has no checkpoint of step 7; it has those of 1, 2, 3, 4, 5"):
        find_checkpoint(tmp_path, 7)


def test_files_that_a_checkpoint_is_not_of_are_refused(tmp_path):
    def write_files(config=CONFIG, processor=PROCESSOR):
        (tmp_path / "config.json").write_text(json.dumps(config))
        (tmp_path / "processor.json").write_text(json.dumps(processor))

    others = {"log_every_steps": 1, "total_steps": 4, "model": MODEL | {"compute": {"remat": True}}}
    for config in (CONFIG, CONFIG | others):
        write_files(config)
        read_run_files(tmp_path, record(1))
    for changed, message in (
        ({"seed": 2}, "seed: 1 -> 2"),
        ({"total_steps": 2}, "total_steps: 3 -> 2"),
        ({"data": {"keep_checkpoints": 2, "compute": 1}}, "data.keep_checkpoints: 1 -> 2"),
        ({"data": {"keep_checkpoints": 1, "compute": 2}}, "data.compute: 1 -> 2"),
        ({"model": MODEL | {"width": 4}}, "model.width: 8 -> 4"),
        ({"model": MODEL | {"encoder": {"compute": 2}}}, "model.encoder.compute: 1 -> 2"),
    ):
        write_files(CONFIG | changed)
        with pytest.raises(RunError, match=rf"config\.json was edited .*\n  {re.escape(message)}$"):
            read_run_files(tmp_path, record(1))
    write_files(processor=PROCESSOR | {"characters": ["b", "a"]})
    with pytest.raises(RunError, match=r"processor\.json was edited"):
        read_run_files(tmp_path, record(1))
    (tmp_path / "processor.json").unlink()
    with pytest.raises(RunError, match=r"processor\.json is missing"):
        read_run_files(tmp_path, record(1))


def test_arrays_that_changed_are_counted_and_the_first_is_named():
    tree = {"a": np.zeros(3), "b": np.ones(3), "c": np.ones(2)}
    saved = checksums(tree)
    check_arrays(tree, saved, "tree")
    one_bit = np.frombuffer((b"\x01" + bytes(23)), np.float64)
    for changed, message in (
        (tree | {"b": one_bit}, "tree: arrays that fail their checksum: 1, first: ['b']"),
        (tree | {"b": np.zeros(3), "c": np.zeros(2)}, "tree: arrays that fail their checksum: 2, first: ['b']"),
        ({"a": tree["a"], "b": tree["b"]}, "tree: arrays that fail their checksum: 1, first: ['c']"),
        (tree | {"d": np.zeros(1)}, "tree: arrays that fail their checksum: 1, first: ['d']"),
    ):
        with pytest.raises(DamagedCheckpointError, match=re.escape(message)):
            check_arrays(changed, saved, "tree")


def test_the_digest_of_json_depends_on_values_and_not_on_the_order_of_keys():
    assert json_digest({"a": 1, "b": [2]}) == json_digest({"b": [2], "a": 1})
    assert len({json_digest(value) for value in ({"a": 1}, {"a": 1.0}, {"a": "1"}, {"a": [1, 2]}, {"a": [2, 1]})}) == 5


@pytest.mark.parametrize("checkpoint", ["latest", "best"])
def test_a_checkpoint_that_the_training_deletes_meanwhile_is_chosen_again(tmp_path, checkpoint):
    write(tmp_path, 5, score(1.0))
    read = []

    def params_of(found):
        read.append(found.step)
        if found.step == 5:  # the training saves a better one, and deletes this one
            write(tmp_path, 10, score(2.0))
            shutil.rmtree(tmp_path / "checkpoints" / "5")
        return read_record(tmp_path, found.step)

    assert read_checkpoint(tmp_path, checkpoint, params_of).step == 10
    assert read == [5, 10]


def test_a_damaged_checkpoint_is_not_read_for_as_long_as_the_training_saves_others(tmp_path):
    write(tmp_path, 5, score(1.0))
    read = []

    def params_of(found):
        read.append(found.step)
        write(tmp_path, 5 * len(read) + 5, score(0.0))
        raise DamagedCheckpointError("a flipped bit")

    with pytest.raises(DamagedCheckpointError, match="a flipped bit"):
        read_checkpoint(tmp_path, "best", params_of)
    assert read == [5, 5]


def test_a_damaged_checkpoint_is_read_once(tmp_path):
    write(tmp_path, 5)
    read = []

    def params_of(found):
        read.append(found.step)
        raise DamagedCheckpointError("a flipped bit")

    with pytest.raises(DamagedCheckpointError, match="a flipped bit"):
        read_checkpoint(tmp_path, "latest", params_of)
    assert read == [5]
