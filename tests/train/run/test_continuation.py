import dataclasses
import json
import re
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from configs import ud_parser
from jaxnlp.runs import load_run
from jaxnlp.saving.checkpoint_reading import DamagedCheckpointError, RunError, find_checkpoint, json_digest, read_record
from jaxnlp.saving.serialization import to_json
from train import evaluate
from train.config import update
from train.report.rebuild import main as report
from train.run.continuation import check_continuation, check_ended, check_folder, data_of, refuse_config_change
from train.run.folder import RunMismatchError, RunSpec, create

PROCESSOR = {"type": "jaxnlp.text.characters:CharacterVocabulary", "characters": ["a", "b"]}


def make(folder, config):
    create(folder, RunSpec(to_json(config), config.identity(), PROCESSOR, description="d", fingerprint="f"))


def files(path):
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def edit(path, **fields):
    """Changes fields of a JSON file, dotted names reaching inside."""
    content = json.loads(path.read_text())
    for name, value in fields.items():
        *parents, last = name.split("__")
        place = content
        for parent in parents:
            place = place[parent]
        place[last] = value
    path.write_text(json.dumps(content))


@pytest.fixture(scope="module")
def finished(tiny_config, tiny_gpt, tmp_path_factory, quick_fit):
    """The folder and the config of a run of six steps, with checkpoints of steps 3 and 6."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    config = tiny_config(model=tiny_gpt, total_steps=6, evaluate_every_steps=3, ema_decay=0.9)
    quick_fit(config, folder)
    return folder, config


@pytest.fixture
def run(finished, tmp_path):
    """A copy of it that a test may damage."""
    return shutil.copytree(finished[0], tmp_path / "run")


@pytest.mark.parametrize("few", [True, False])
def test_a_config_that_leaves_the_lengths_to_the_device_is_that_of_a_run_on_any_device(tmp_path, tiny_config, few):
    make(tmp_path, tiny_config(**{"data.few_lengths": few}))
    check_folder(tmp_path, tiny_config())  # as in a sweep that continues


def test_a_created_folder_is_that_of_its_config(tmp_path, tiny_config, tiny_gpt):
    config = tiny_config(model=tiny_gpt)
    make(tmp_path / "run", config)
    check_folder(tmp_path / "run", config)


def test_pretrained_weights_may_be_named_in_another_spelling_and_no_others(tmp_path, tiny_config):
    (tmp_path / "weights").mkdir()
    (tmp_path / "link").symlink_to("weights")
    config = tiny_config(init_from=str(tmp_path / "weights"))
    make(tmp_path / "run", config)
    for spelling in ("weights/", "run/../weights", "link"):
        assert check_folder(tmp_path / "run", tiny_config(init_from=f"{tmp_path}/{spelling}")) == config
    for others in (None, str(tmp_path / "other")):
        with pytest.raises(RunMismatchError, match=r"\n  init_from: "):
            check_folder(tmp_path / "run", tiny_config(init_from=others))


def test_another_config_is_refused_with_each_difference_and_changes_nothing(tmp_path, tiny_config):
    make(tmp_path, tiny_config())
    before = files(tmp_path)
    with pytest.raises(RunMismatchError) as caught:
        check_folder(tmp_path, tiny_config(seed=3, **{"optimizer.learning_rate": 0.25}))
    message, *lines = str(caught.value).splitlines()
    assert str(tmp_path) in message
    assert "--workdir" in message
    assert lines == ["  optimizer.learning_rate: 0.03 -> 0.25", "  seed: 0 -> 3"]
    assert files(tmp_path) == before


def test_a_run_of_another_recipe_is_refused_without_a_list_of_differences(tmp_path, tiny_config):
    config = tiny_config()
    make(tmp_path, config)
    other = tiny_config(recipe="other", seed=3)
    with pytest.raises(RunMismatchError, match=rf"of the recipe {config.recipe}, not other; give another --workdir$"):
        check_folder(tmp_path, other)


@pytest.mark.thorough
def test_a_run_continues_under_another_compute_and_other_intervals(run, finished, quick_fit):
    changes = {"model.compute.remat": True, "model.compute.attention": "xla", "log_every_steps": 2, "total_steps": 6}
    changes |= {"data.num_workers": 1}
    config = update(finished[1], evaluate_every_steps=2, checkpoint_every_steps=1, keep_checkpoints=5, **changes)
    shutil.rmtree(run / "checkpoints" / "6")
    state = quick_fit(config, run).state
    expected = load_run(finished[0], checkpoint="latest").params
    for a, b in zip(jax.tree.leaves(state.ema), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    assert load_run(run).step == 6
    assert json.loads((run / "environment.json").read_text())["compute"]["remat"] is True


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    "fields",
    [{"model__num_heads": 1}, {"seed": 5}, {"recipe": "other"}, {"data__sequence_length": 7}],
    ids=lambda fields: next(iter(fields)),
)
def test_an_edited_config_is_refused_by_everything_that_loads_with_the_field_named(run, fields):
    edit(run / "config.json", **fields)
    (field,) = fields
    for load in (load_run, lambda run: report([str(run)])):
        with pytest.raises(ValueError, match=rf"config\.json was edited.*\n  {field.replace('__', '.')}: "):
            load(run)


def test_swapped_entries_of_the_vocabulary_are_refused_by_everything_that_loads(run, finished, quick_fit):
    path = run / "processor.json"
    characters = json.loads(path.read_text())["characters"]
    edit(path, characters=[characters[1], characters[0], *characters[2:]])
    before = files(run)
    for read in (lambda: load_run(run), lambda: quick_fit(finished[1], run)):
        with pytest.raises(RunError, match=r"processor\.json was edited"):
            read()
    assert files(run) == before


def test_a_missing_data_set_says_which_verb_has_its_options(run, monkeypatch, tmp_path):
    monkeypatch.setenv("JAXNLP_DATA", str(tmp_path))
    config = ud_parser.get_config()
    with pytest.raises(FileNotFoundError, match=r"with --data\.path, .*; only jaxnlp train has options"):
        data_of(run, config, None, read_record(run, 6))


def test_the_data_may_move_if_it_stays_the_same(run, finished, quick_fit, small_text, tmp_path, capsys):
    moved, other = tmp_path / "moved.txt", tmp_path / "other.txt"
    moved.write_text(small_text.read_text())
    other.write_text(small_text.read_text()[::-1])
    before = files(run)
    with pytest.raises(RunMismatchError, match="the data has changed since"):
        quick_fit(update(finished[1], **{"data.path": str(other)}), run)
    with pytest.raises(RunMismatchError, match="the data has changed since"):
        check_ended(run, update(finished[1], **{"data.path": str(other)}))
    check_ended(run, update(finished[1], **{"data.path": str(moved)}))
    assert files(run) == before
    quick_fit(update(finished[1], **{"data.path": str(moved)}), run)
    assert json.loads((run / "config.json").read_text())["data"]["path"] == str(moved)
    assert evaluate.main([str(run)]) == 0
    again = tmp_path / "again.txt"
    moved.rename(again)
    place = re.escape(f"if it was moved, correct data.path in {run / 'config.json'}")
    with pytest.raises(FileNotFoundError, match=rf"moved\.txt does not exist; .*; {place}$"):
        evaluate.main([str(run)])
    (run / "config.json").write_text((run / "config.json").read_text().replace(str(moved), str(again)))
    assert evaluate.main([str(run), "--checkpoint", "3"]) == 0


def test_a_finished_run_without_its_environment_says_what_to_restore(run, finished, quick_fit):
    (run / "environment.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"environment\.json is missing; restore it: it names the metrics"):
        quick_fit(finished[1], run)


def test_another_alphabet_leaves_the_saved_one_in_place(run, finished, quick_fit):
    source = Path(finished[1].data.path)
    original, before = source.read_text(), files(run)
    try:
        source.write_text("xyz " * 300)
        with pytest.raises(RunMismatchError, match="has changed since"):
            quick_fit(finished[1], run)
    finally:
        source.write_text(original)
    assert files(run) == before


def test_deleted_averages_are_noticed(run):
    shutil.rmtree(run / "checkpoints" / "6" / "ema")
    with pytest.raises(DamagedCheckpointError, match="is incomplete; missing: ema"):
        load_run(run, checkpoint="latest")


def test_an_edited_score_does_not_change_which_checkpoint_is_the_best(run, caplog):
    best = find_checkpoint(run, "best").step
    other = ({3, 6} - {best}).pop()
    path = run / "checkpoints" / str(other) / "record" / "metadata"
    edit(path, metrics={"score": 1e9, "loss": 0.0})
    assert find_checkpoint(run, "best").step == best
    assert "fails its checksum" in caplog.text


def test_a_renamed_checkpoint_is_noticed(run):
    shutil.move(run / "checkpoints" / "3", run / "checkpoints" / "5")
    with pytest.raises(DamagedCheckpointError, match="is a copied or renamed checkpoint of step 3"):
        load_run(run, checkpoint=5)


def test_deleted_checkpoints_are_not_taken_for_a_new_run(run, finished, quick_fit):
    shutil.rmtree(run / "checkpoints")
    before = files(run)
    with pytest.raises(RunMismatchError, match="has metrics up to step 6 but no checkpoints"):
        quick_fit(finished[1], run)
    assert files(run) == before


def test_emptied_checkpoints_are_not_taken_for_a_new_run(run, finished, quick_fit):
    for checkpoint in (run / "checkpoints").iterdir():
        shutil.rmtree(checkpoint)
    before = files(run)
    with pytest.raises(RunMismatchError, match="has metrics up to step 6 but no checkpoints"):
        quick_fit(finished[1], run)
    assert files(run) == before


def test_a_run_that_was_killed_during_its_first_save_begins_again_whatever_it_has_logged(run, finished):
    for checkpoint in (run / "checkpoints").iterdir():
        shutil.rmtree(checkpoint)
    (run / "checkpoints" / "3.orbax-checkpoint-tmp").mkdir()
    check_folder(run, finished[1])


@pytest.mark.thorough
def test_a_run_is_not_made_shorter_than_it_has_trained(tiny_config, tmp_path, quick_fit):
    config = update(tiny_config(total_steps=2), **{"optimizer.schedule": "constant"})
    quick_fit(config, tmp_path)
    before = files(tmp_path)
    with pytest.raises(RunMismatchError, match="has trained to step 2, but total_steps is 1; give at least 2"):
        quick_fit(update(config, total_steps=1), tmp_path)
    assert files(tmp_path) == before


def test_changed_data_is_refused_before_anything_is_written(run, finished, quick_fit):
    """The config and the vocabulary are the same: only the fingerprint differs."""
    source = Path(finished[1].data.path)
    original, before = source.read_text(), files(run)
    try:
        source.write_text(original[::-1])
        with pytest.raises(RunMismatchError, match=r"restore the data, or .*\n  before and now: .*\n  the numbers"):
            quick_fit(finished[1], run)
        source.write_text(original + "Q")
        details = r"\n  before: .*\n  now: .*\n  processor\.json would differ:\n    characters: \["
        with pytest.raises(RunMismatchError, match=rf"^the data has changed since the run in .* started.*{details}"):
            quick_fit(finished[1], run)
        with pytest.raises(RunMismatchError, match=r"the run in .* has ended, and cannot read this data: .*'Q'"):
            check_ended(run, finished[1])
    finally:
        source.write_text(original)
    assert files(run) == before


def test_a_changed_processor_is_compared_as_it_would_be_saved(run):
    """A tuple in a list, such as the names of classes, is no difference."""
    saved = {**PROCESSOR, "parts": [{"names": ["a", "b"]}]}
    (run / "processor.json").write_text(json.dumps(saved))
    record = dataclasses.replace(read_record(run, 6), processor_digest=json_digest(saved))
    now = {**saved, "characters": ("a", "c"), "parts": [{"names": ("a", "b")}]}
    spec = RunSpec({}, {}, now, description="d", fingerprint="f")
    with pytest.raises(RunMismatchError) as error:
        check_continuation(record, spec, run)
    assert str(error.value).partition("would differ:")[2].split() == [
        "characters:",
        "['a',",
        "'b']",
        "->",
        "['a',",
        "'c']",
    ]


def test_many_and_long_differences_do_not_fill_the_screen():
    before = {f"f{number}": "a" * 5000 for number in range(25)}
    with pytest.raises(RunMismatchError) as caught:
        refuse_config_change(before, dict.fromkeys(before, "b"), Path("run"))
    lines = str(caught.value).splitlines()
    assert len(lines) == 1 + 20 + 1
    assert max(map(len, lines)) < 310
    assert lines[-1] == "  and 5 more"


def test_checking_a_new_folder_does_not_make_it(tmp_path, tiny_config):
    check_folder(tmp_path / "new", tiny_config())
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_file_where_the_folder_should_be_is_refused(tmp_path, tiny_config, place):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunMismatchError, match="is a file; give a directory with --workdir"):
        check_folder(tmp_path / place, tiny_config())


def test_broken_config_file_is_named_with_its_line(tmp_path, tiny_config):
    (tmp_path / "config.json").write_text('{\n"recipe": oh\n}')
    with pytest.raises(RunMismatchError, match=r"config\.json, line 2: not JSON"):
        check_folder(tmp_path, tiny_config())


@pytest.mark.parametrize("stranger", ["metrics.jsonl", "checkpoints/3", "holiday.jpg"])
def test_a_folder_with_files_but_no_config_is_not_a_run(tmp_path, tiny_config, stranger):
    (tmp_path / stranger).mkdir(parents=True)
    with pytest.raises(RunMismatchError, match=f"has {stranger.partition('/')[0]} but no config.json"):
        check_folder(tmp_path, tiny_config())
    assert [path.name for path in tmp_path.iterdir()] == [stranger.partition("/")[0]]


def test_what_a_start_that_was_killed_at_once_has_left_is_no_obstacle(tmp_path, tiny_config):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "processor.json").write_text("{}")
    check_folder(tmp_path, tiny_config())


def test_a_link_to_nowhere_and_the_current_folder_are_refused(tmp_path, tiny_config):
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    for place in (tmp_path / "link", tmp_path / "link" / "run"):
        with pytest.raises(RunMismatchError, match=r"link is a link to .*gone, which does not exist"):
            check_folder(place, tiny_config())
    with pytest.raises(RunMismatchError, match="a run needs its own folder, not the current one"):
        check_folder(Path(""), tiny_config())


@pytest.mark.parametrize("line", ["[1]", '{"split": "train"}', '{"step": "1"}'], ids=["list", "no step", "text"])
def test_a_row_that_is_no_row_is_refused_before_anything_is_written(run, finished, quick_fit, line):
    path = run / "metrics.jsonl"
    path.write_text(line + "\n" + path.read_text())
    before = files(run)
    with pytest.raises(RunMismatchError, match=r"metrics\.jsonl, line 1: expected"):
        quick_fit(finished[1], run)
    assert files(run) == before
