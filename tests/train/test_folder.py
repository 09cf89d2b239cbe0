import json
import os
import re
import subprocess

import jax
import pytest
from train.folder import RunMismatchError, check, claim, keep_lines_until, read_config, write_environment, write_json

from jaxnlp.serialization import ConfigError
from jaxnlp.text.characters import CharacterVocabulary
from train import folder
from train.config import TrainConfig, update


@pytest.fixture
def corpus(tiny_config):
    return tiny_config().data.load(0)


def files(path):
    return {file.name: file.read_bytes() for file in path.iterdir()}


def test_claimed_folder_holds_config_vocabulary_and_what_tells_the_data_apart(tmp_path, tiny_config, tiny_gpt, corpus):
    config = tiny_config(model=tiny_gpt)
    claim(tmp_path / "runs" / "a", config, corpus)
    run = tmp_path / "runs" / "a"
    assert set(files(run)) == {"config.json", "vocabulary.json", "data.json"}
    assert read_config(run) == config
    assert CharacterVocabulary.load(run / "vocabulary.json") == corpus.vocabulary
    assert json.loads((run / "data.json").read_text())["fingerprint"] == corpus.fingerprint


def test_claiming_again_changes_nothing(tmp_path, tiny_config, corpus):
    claim(tmp_path, tiny_config(), corpus)
    before = files(tmp_path)
    check(tmp_path, tiny_config())
    claim(tmp_path, tiny_config(), corpus)
    assert files(tmp_path) == before


def test_another_config_is_refused_with_each_difference_and_changes_nothing(tmp_path, tiny_config, corpus):
    claim(tmp_path, tiny_config(), corpus)
    before = files(tmp_path)
    other = tiny_config(seed=3, **{"optimizer.learning_rate": 0.25})
    for refuse in (lambda: check(tmp_path, other), lambda: claim(tmp_path, other, corpus)):
        with pytest.raises(RunMismatchError) as caught:
            refuse()
        message, *lines = str(caught.value).splitlines()
        assert str(tmp_path) in message
        assert "--workdir" in message
        assert lines == ["  optimizer.learning_rate: 0.03 -> 0.25", "  seed: 0 -> 3"]
    assert files(tmp_path) == before


def test_a_config_from_before_there_was_a_field_is_that_of_its_default(tmp_path, tiny_config, tiny_gpt, corpus):
    claim(tmp_path, tiny_config(model=tiny_gpt), corpus)
    held = json.loads((tmp_path / "config.json").read_text())
    del held["loss"], held["ema_decay"]
    (tmp_path / "config.json").write_text(json.dumps(held))
    check(tmp_path, tiny_config(model=tiny_gpt))
    with pytest.raises(RunMismatchError, match=r"loss.z_loss: 0.0 -> 0.5"):
        check(tmp_path, tiny_config(model=tiny_gpt, **{"loss.z_loss": 0.5}))


def test_changed_data_is_refused_and_changes_nothing(tmp_path, tiny_config, corpus):
    text = tmp_path / "text.txt"
    text.write_text("ab" * 200)
    config = tiny_config(**{"data.path": str(text)})
    run = tmp_path / "run"
    claim(run, config, config.data.load(0))
    before = files(run)
    text.write_text("ab" * 199 + "ba")
    with pytest.raises(
        RunMismatchError, match=rf"data has changed since the run in {re.escape(str(run))} began; .*\n  \w+: "
    ):
        claim(run, config, config.data.load(0))
    assert files(run) == before


def test_checking_a_new_folder_does_not_make_it(tmp_path, tiny_config):
    check(tmp_path / "new", tiny_config())
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_file_where_the_folder_should_be_is_refused(tmp_path, tiny_config, corpus, place):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunMismatchError, match="is a file; give a folder with --workdir"):
        claim(tmp_path / place, tiny_config(), corpus)


def test_folder_that_a_start_left_half_claimed_can_be_claimed(tmp_path, tiny_config, corpus):
    claim(tmp_path, tiny_config(), corpus)
    whole = files(tmp_path)
    for missing in whole:
        (tmp_path / missing).unlink()
        claim(tmp_path, tiny_config(), corpus)
        assert files(tmp_path) == whole


def test_broken_config_file_is_named_with_its_line(tmp_path, tiny_config):
    (tmp_path / "config.json").write_text('{\n"recipe": oh\n}')
    with pytest.raises(RunMismatchError, match=r"config\.json, line 2: not JSON"):
        check(tmp_path, tiny_config())


def test_config_of_another_version_is_refused_by_the_field_that_does_not_fit(tmp_path, tiny_config, tiny_gpt, corpus):
    claim(tmp_path, tiny_config(model=tiny_gpt), corpus)
    held = json.loads((tmp_path / "config.json").read_text())
    write_json(tmp_path / "config.json", held | {"total_steps": "many"})
    with pytest.raises(ConfigError, match=r"config\.total_steps: expected int, got 'many'"):
        read_config(tmp_path)


def test_environment_tells_versions_devices_and_commit(tmp_path, root):
    write_environment(tmp_path, parameters=12, parallel="pmap", command="python -m train x")
    environment = json.loads((tmp_path / "environment.json").read_text())
    assert environment["command"] == "python -m train x"
    assert environment["versions"]["jax"] == jax.__version__
    assert (environment["devices"], environment["parameters"], environment["parallel"]) == (8, 12, "pmap")
    if (root / ".git").exists():
        head = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        assert environment["commit"].removesuffix("-dirty") == head.stdout.strip()


def test_noted_facts_join_the_environment(tmp_path):
    write_environment(tmp_path, parameters=12, parallel="jit", command=None)
    before = json.loads((tmp_path / "environment.json").read_text())
    folder.note(tmp_path, seconds_to_first_step=1.5)
    assert json.loads((tmp_path / "environment.json").read_text()) == before | {"seconds_to_first_step": 1.5}


@pytest.mark.parametrize("stranger", ["metrics.jsonl", "checkpoints"])
def test_folder_with_results_but_no_config_is_no_run_of_ours(tmp_path, tiny_config, corpus, stranger):
    (tmp_path / stranger).mkdir()
    with pytest.raises(RunMismatchError, match=f"has {stranger} but no config.json"):
        claim(tmp_path, tiny_config(), corpus)
    assert [path.name for path in tmp_path.iterdir()] == [stranger]


def test_commit_is_unknown_without_git(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert folder.commit() is None


def test_written_json_reads_back_and_leaves_no_other_file(tmp_path):
    write_json(tmp_path / "a.json", {"old": 1})
    write_json(tmp_path / "a.json", {"naïve": [1, None, "汉字"]})
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == {"naïve": [1, None, "汉字"]}
    assert set(files(tmp_path)) == {"a.json"}


def test_writing_that_dies_half_way_leaves_the_old_file_whole(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_json(path, {"old": 1})

    def die(*_):
        raise KeyboardInterrupt

    for function in ("replace", "rename"):
        monkeypatch.setattr(os, function, die)
    with pytest.raises(KeyboardInterrupt):
        write_json(path, {"new": 2})
    assert json.loads(path.read_text()) == {"old": 1}


def test_value_that_is_no_json_leaves_the_old_file_whole(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"old": 1})
    with pytest.raises(TypeError):
        write_json(path, {"new": object()})
    assert json.loads(path.read_text()) == {"old": 1}
    assert set(files(tmp_path)) == {"a.json"}


def test_lines_after_a_step_are_dropped_and_the_others_stay_byte_for_byte(tmp_path):
    path = tmp_path / "rows.jsonl"
    kept = b'{"step": 1, "text": "\xe6\xb1\x89 \xe2\x80\xa8"}\n{"text":"b",  "step":2}\n'
    path.write_bytes(kept + b'{"step": 3}\n{"step": 4')
    keep_lines_until(path, 2)
    assert path.read_bytes() == kept
    assert set(files(tmp_path)) == {"rows.jsonl"}


def test_file_of_lines_that_is_missing_stays_missing(tmp_path):
    keep_lines_until(tmp_path / "rows.jsonl", 2)
    assert files(tmp_path) == {}


def test_broken_line_that_is_not_the_last_is_named_and_nothing_is_lost(tmp_path):
    path = tmp_path / "rows.jsonl"
    content = '{"step": 1}\n{"step"\n{"step": 2}\n'
    path.write_text(content)
    with pytest.raises(RunMismatchError, match=r"rows\.jsonl, line 2: not JSON"):
        keep_lines_until(path, 5)
    assert path.read_text() == content


def test_read_config_gives_back_what_update_made(tmp_path, tiny_config, tiny_gpt, corpus):
    config = update(tiny_config(model=tiny_gpt), sample_prompt="a", **{"model.width": 16})
    claim(tmp_path, config, corpus)
    assert isinstance(read_config(tmp_path), TrainConfig)
    assert read_config(tmp_path) == config
