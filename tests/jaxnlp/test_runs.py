import json
import logging
import math
import os
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxnlp.runs import (
    DamagedCheckpointError,
    RunError,
    check_digests,
    digests,
    find_checkpoint,
    load_params,
    load_run,
    make_decoder,
)
from jaxnlp.serialization import to_json
from jaxnlp.text.characters import CharacterVocabulary
from train.checkpoint import Checkpoints


@pytest.fixture
def moved(finished_run, tmp_path):
    """The run under another name, to be changed as one likes."""
    return shutil.copytree(finished_run.folder, tmp_path / "moved here")


@pytest.fixture(scope="module")
def unscored_run(finished_run, tmp_path_factory):
    """A run with a moving average of its parameters and two checkpoints: one's loss is NaN, the other's unknown."""
    folder = tmp_path_factory.mktemp("unscored")
    for name in ("config.json", "vocabulary.json"):
        shutil.copy(finished_run.folder / name, folder)
    state = jax.device_put(finished_run.state, jax.devices()[0])  # which saves faster than eight copies do
    with Checkpoints(folder, keep=2) as checkpoints:
        for step, loss in ((5, math.nan), (70, None)):
            average = jax.tree.map(lambda x, step=step: np.asarray(x) + np.float32(step), state.params)
            checkpoints.save(
                state.replace(step=np.int32(step), ema=average),
                data_state={},
                config={},
                train_seconds=0.0,
                validation_error=loss,
            )
    return folder


def assert_equal_bits(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


# Orbax closes its event loop before everything in it has ended.
orbax_may_complain = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def is_noticed(checkpoint, model, expected):
    """Whether reading it fails; if it does not, it must give the expected parameters."""
    try:
        params = load_params(checkpoint, model)
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
    assert (run.folder, run.step) == (moved, 2)
    assert run.config == to_json(finished_run.config)
    text = Path(finished_run.config.data.path).read_text()
    assert run.vocabulary == CharacterVocabulary.of(text)
    assert run.model == finished_run.config.model.build(len(set(text)))
    assert_equal_bits(run.params, finished_run.state.params)


def test_a_run_of_many_devices_is_read_on_one(finished_run):
    script = (
        "import jax, json, sys; from jaxnlp.runs import digests, load_run; "
        "print(json.dumps([jax.device_count(), digests(load_run(sys.argv[1], checkpoint=2).params)]))"
    )
    environment = os.environ | {"XLA_FLAGS": "", "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script, str(finished_run.folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads((finished_run.folder / "environment.json").read_text())["devices"] == 8
    assert json.loads(done.stdout) == [1, digests(finished_run.state.params)]


def test_the_best_checkpoint_has_the_lowest_validation_loss(finished_run):
    rows = [json.loads(line) for line in (finished_run.folder / "metrics.jsonl").read_text().splitlines()]
    losses = {row["step"]: row["loss"] for row in rows if row["split"] == "validation"}
    assert losses.keys() == {1, 2}
    best, newest = min(losses, key=losses.__getitem__), max(losses)
    assert best != newest
    assert find_checkpoint(finished_run.folder, "best") == best
    assert find_checkpoint(finished_run.folder, "latest") == newest
    assert load_run(finished_run.folder).step == best


def test_a_checkpoint_can_be_chosen_by_its_step(finished_run):
    first, second = (load_run(finished_run.folder, checkpoint=step) for step in (1, 2))
    assert (first.step, second.step) == (1, 2)
    assert_equal_bits(second.params, finished_run.state.params)
    assert not np.array_equal(first.params["positions"], second.params["positions"])


def test_where_no_checkpoint_has_a_validation_loss_the_newest_is_the_best(unscored_run):
    assert find_checkpoint(unscored_run, "best") == find_checkpoint(unscored_run, "latest") == 70


def test_a_moving_average_is_used_where_the_run_kept_one(unscored_run, finished_run):
    expected = jax.tree.map(lambda x: np.asarray(x) + np.float32(5), finished_run.state.params)
    assert_equal_bits(load_run(unscored_run, checkpoint=5).params, expected)


def test_a_checkpoint_that_was_not_finished_does_not_count(moved):
    unfinished = moved / "checkpoints" / "3.orbax-checkpoint-tmp"
    shutil.copytree(moved / "checkpoints" / "2", unfinished)
    assert find_checkpoint(moved, "latest") == 2


def test_a_folder_without_config_is_no_run(moved):
    (moved / "config.json").unlink()
    for folder in (moved, moved / "nowhere"):
        message = f"{folder} is not a run's folder: it has no config.json"
        with pytest.raises(RunError, match=re.escape(message)):
            load_run(folder)


def test_the_folder_of_a_pretrained_model_is_no_run_s(moved):
    (moved / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(RunError, match=r"holds no config of a run: it is a pretrained model's; predict, embed and"):
        load_run(moved)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "3", "{}", '{"model": null}', '{"model": {"type": "os:system"}}', "\udcff"],
    ids=["empty", "half", "list", "number", "no model", "null", "untrusted", "no UTF-8"],
)
def test_a_config_that_is_none_is_named(moved, content):
    (moved / "config.json").write_text(content, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(RunError, match=re.escape(f"{moved / 'config.json'} holds no config of a run")):
        load_run(moved)


def test_a_run_without_vocabulary_is_an_error_of_the_run(moved):
    (moved / "vocabulary.json").unlink()
    with pytest.raises(RunError, match=re.escape(str(moved / "vocabulary.json"))):
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
    message = f"{finished_run.folder} has no checkpoint of step 7; it has 1, 2"
    with pytest.raises(RunError, match=re.escape(message)):
        load_run(finished_run.folder, checkpoint=7)


@orbax_may_complain
def test_a_flipped_byte_anywhere_never_changes_a_parameter_unnoticed(finished_run, tmp_path):
    original, model = finished_run.folder / "checkpoints" / "2", load_run(finished_run.folder).model
    files = [p.relative_to(original) for part in ("params", "digests") for p in (original / part).rglob("*")]
    noticed = set()
    # When array_metadatas, which the digests cover, does not fit, Orbax leaves coroutines that complain at exit.
    for file in [file for file in files if (original / file).is_file() and "array_metadatas" not in file.parts]:
        for place in (0, 1):
            copy = tmp_path / f"{place}" / file
            shutil.copytree(original, copy, ignore=shutil.ignore_patterns("training"))
            flip_byte(copy / file, place)
            if is_noticed(copy, model, finished_run.state.params):
                noticed.add((file, place))
    # The files that every load reads: arrays, what lists them, and the digests themselves.
    arrays = {file for file in files if file.parent.as_posix() == "params/d"}
    listings = {file for file in files if file.as_posix() in ("params/manifest.ocdbt", "params/_METADATA")}
    digest = {file for file in files if file.as_posix() == "digests/metadata"}
    assert arrays
    assert len(listings | digest) == 3
    assert noticed >= {(file, place) for file in arrays | listings | digest for place in (0, 1)}


def test_whole_arrays_that_are_not_those_saved_are_noticed(moved):
    first, second = (moved / "checkpoints" / step for step in ("1", "2"))
    shutil.rmtree(second / "params")
    shutil.copytree(first / "params", second / "params")
    message = rf"params of checkpoint {re.escape(str(second))}: \d+ arrays are not what was saved, such as \['blocks'\]"
    with pytest.raises(DamagedCheckpointError, match=message):
        load_run(moved, checkpoint=2)
    assert load_run(moved, checkpoint=1).step == 1


@orbax_may_complain
@pytest.mark.parametrize("part", ["params", "digests", "params/d", "params/manifest.ocdbt"])
def test_a_checkpoint_of_which_a_part_is_missing_is_damaged(moved, part):
    path = moved / "checkpoints" / "2" / part
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(DamagedCheckpointError, match=re.escape(str(moved / "checkpoints" / "2"))):
        load_run(moved, checkpoint=2)


def test_a_checkpoint_whose_loss_cannot_be_read_is_passed_over_and_named(moved, caplog):
    assert find_checkpoint(moved, "best") == 1
    flip_byte(moved / "checkpoints" / "1" / "run" / "metadata", 0)
    with caplog.at_level(logging.WARNING, logger="jaxnlp"):
        assert find_checkpoint(moved, "best") == 2
    assert str(moved / "checkpoints" / "1") in caplog.text


def test_a_model_or_vocabulary_that_the_parameters_do_not_fit_is_noticed(moved):
    config, vocabulary = moved / "config.json", moved / "vocabulary.json"
    for path, old, new in ((config, '"width": 8', '"width": 16'), (vocabulary, '"a",', '"a", "b",')):
        content = path.read_text()
        assert old in content
        path.write_text(content.replace(old, new))
        with pytest.raises(DamagedCheckpointError, match=re.escape(str(moved / "checkpoints" / "2"))):
            load_run(moved, checkpoint=2)
        path.write_text(content)


def test_digests_are_the_crc32_of_each_arrays_bytes():
    tree = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": {"c": jnp.int32(7)}}
    expected = {"['a']": np.arange(6, dtype="<f4").tobytes(), "['b']['c']": (7).to_bytes(4, "little")}
    assert digests(tree) == {path: zlib.crc32(content) for path, content in expected.items()}
    assert digests({"a": tree["a"].T}) != digests({"a": tree["a"]})


def test_arrays_that_changed_are_counted_and_named():
    tree = {"a": np.zeros(3), "b": np.ones(3), "c": np.ones(2)}
    saved = digests(tree)
    check_digests(tree, saved, "tree")
    one_bit = np.frombuffer((b"\x01" + bytes(23)), np.float64)
    for changed, message in (
        (tree | {"b": one_bit}, "tree: 1 arrays are not what was saved, such as ['b']"),
        (tree | {"b": np.zeros(3), "c": np.zeros(2)}, "tree: 2 arrays are not what was saved, such as ['b']"),
        ({"a": tree["a"], "b": tree["b"]}, "tree: 1 arrays are not what was saved, such as ['c']"),
        (tree | {"d": np.zeros(1)}, "tree: 1 arrays are not what was saved, such as ['d']"),
    ):
        with pytest.raises(DamagedCheckpointError, match=re.escape(message)):
            check_digests(changed, saved, "tree")


def test_the_decoder_reads_what_the_model_reads(finished_run):
    run = load_run(finished_run.folder)
    decoder = make_decoder(run.model)
    tokens = np.array([[1, 2, 0], [3, 1, 1]], np.int32)
    logits, cache = jax.jit(decoder.read)(decoder.prepare(run.params), tokens, decoder.empty_cache(2), 2)
    expected = jax.jit(run.model.apply)({"params": run.params}, tokens)
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    assert (int(cache.length), decoder.capacity) == (2, 20)


def test_a_model_without_parameters_for_decoding_reads_with_those_of_training():
    class Bias(nn.Module):
        capacity = None

        @nn.compact
        def __call__(self, tokens, *, cache=None, count=None):
            return self.param("bias", nn.initializers.zeros, (3,)) + jnp.zeros((*tokens.shape, 3)), (cache, count)

        def empty_cache(self, batch):
            return batch

    decoder = make_decoder(Bias())
    params = {"bias": np.array([1.0, 2.0, 3.0], np.float32)}
    assert decoder.capacity is None
    with jax.numpy_rank_promotion("allow"):
        logits, kept = decoder.read(decoder.prepare(params), np.zeros((2, 4), np.int32), decoder.empty_cache(2), 3)
    np.testing.assert_array_equal(logits, np.tile(params["bias"], (2, 4, 1)))
    assert kept == (2, 3)
