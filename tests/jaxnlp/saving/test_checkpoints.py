import json
import re
import zlib

import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from jaxnlp.saving.checkpoints import (
    DamagedCheckpointError,
    Record,
    RunError,
    check_arrays,
    check_run_files,
    checkpoint_steps,
    checksums,
    find_checkpoint,
    identity,
    json_digest,
    read_record,
)

CONFIG = {"recipe": "r", "seed": 1, "log_every_steps": 5, "model": {"width": 8, "compute": {"remat": False}}}
PROCESSOR = {"type": "a:B", "characters": ["a", "b"]}


def record(step, metrics=None):
    return Record(step, CONFIG, json_digest(PROCESSOR), "text", "f", 1.5, metrics, [2.0], {"next": step}, {})


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


@pytest.mark.parametrize("field", ["config", "processor_digest", "fingerprint", "metrics", "data_state", "losses"])
def test_any_field_of_a_record_that_was_edited_is_noticed(tmp_path, field):
    write(tmp_path, 3, content=record(3).to_json() | {field: "edited"})
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
    assert [find_checkpoint(tmp_path, which) for which in ("best", "latest", 2)] == [3, 5, 2]
    with pytest.raises(RunError, match="has no checkpoint of step 7; it has those of 1, 2, 3, 4, 5"):
        find_checkpoint(tmp_path, 7)


def test_what_does_not_decide_the_numbers_of_a_run_is_not_its_identity():
    changed = CONFIG | {"log_every_steps": 1, "model": {"width": 8, "compute": {"remat": True}}}
    assert identity(CONFIG) == identity(changed) == {"recipe": "r", "seed": 1, "model": {"width": 8}}
    assert identity(CONFIG) != identity(CONFIG | {"seed": 2})


def test_fields_of_other_places_with_the_name_of_bookkeeping_decide_the_numbers():
    """A family outside the library may have fields of any name."""
    for section in ("data", "task", "model"):
        for name in ("log_every_steps", "evaluate_every_steps", "keep_checkpoints", "total_steps"):
            assert identity(CONFIG | {section: {name: 1}}) != identity(CONFIG | {section: {name: 2}}), (section, name)
    for section in ("data", "task", "optimizer"):
        assert identity(CONFIG | {section: {"compute": 1}}) != identity(CONFIG | {section: {"compute": 2}}), section
    inner = [CONFIG | {"model": {"encoder": {"compute": rounds}}} for rounds in (1, 2)]
    assert identity(inner[0]) != identity(inner[1])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", CONFIG | {"seed": 2}, r"config\.json was edited .*\n  seed: 1 -> 2"),
        ("config.json", CONFIG | {"model": {"width": 4}}, r"config\.json was edited .*\n  model\.width: 8 -> 4"),
        ("processor.json", PROCESSOR | {"characters": ["b", "a"]}, r"processor\.json was edited"),
        ("processor.json", None, r"processor\.json is missing"),
    ],
    ids=["seed", "width", "swapped characters", "no processor"],
)
def test_files_that_a_checkpoint_is_not_of_are_refused(tmp_path, name, content, message):
    for file, value in (("config.json", CONFIG), ("processor.json", PROCESSOR)):
        (tmp_path / file).write_text(json.dumps(value))
    check_run_files(tmp_path, record(1))
    (tmp_path / name).unlink() if content is None else (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(RunError, match=message):
        check_run_files(tmp_path, record(1))


def test_checksums_are_the_crc32_of_each_arrays_bytes():
    tree = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": {"c": jnp.int32(7)}, "d": jnp.ones(2, jnp.bfloat16)}
    expected = {
        "['a']": np.arange(6, dtype="<f4").tobytes(),
        "['b']['c']": (7).to_bytes(4, "little"),
        "['d']": b"\x80\x3f" * 2,
    }
    assert checksums(tree) == {path: zlib.crc32(content) for path, content in expected.items()}
    assert checksums({"a": tree["a"].T}) != checksums({"a": tree["a"]})


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
