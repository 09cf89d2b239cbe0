import json
import os
import subprocess

import jax
import pytest

from jaxnlp.saving.serialization import ConfigError, to_json
from train.config import TrainConfig, update
from train.run.folder import (
    RunMismatchError,
    RunSpec,
    create,
    keep_lines_until,
    read_config,
    update_environment,
    write_environment,
    write_json,
)

PROCESSOR = {"type": "jaxnlp.text.characters:CharacterVocabulary", "characters": ["a", "b"]}


def make(folder, config):
    create(folder, RunSpec(to_json(config), config.identity(), PROCESSOR, description="d", fingerprint="f"))


def files(path):
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_created_folder_has_config_and_processor(tmp_path, tiny_config, tiny_gpt):
    config = tiny_config(model=tiny_gpt, **{"data.few_lengths": False})  # a run records which
    folder = tmp_path / "runs" / "a"
    make(folder, config)
    assert files(folder).keys() == {"config.json", "processor.json"}
    assert read_config(folder) == config


def test_config_of_another_version_is_refused_by_the_field_that_does_not_fit(tmp_path, tiny_config, tiny_gpt):
    make(tmp_path, tiny_config(model=tiny_gpt))
    held = json.loads((tmp_path / "config.json").read_text())
    write_json(tmp_path / "config.json", held | {"total_steps": "many"})
    with pytest.raises(ConfigError, match=r"config\.total_steps: expected int, got 'many'"):
        read_config(tmp_path)


def test_environment_has_versions_devices_and_commit(tmp_path, root):
    write_environment(tmp_path, pretrained=None, parameters=12, parallel="pmap", command="jaxnlp train x")
    environment = json.loads((tmp_path / "environment.json").read_text())
    assert environment["command"] == "jaxnlp train x"
    assert environment["versions"]["jax"] == jax.__version__
    assert (environment["devices"], environment["parameters"], environment["parallel"]) == (8, 12, "pmap")
    if (root / ".git").exists():
        head = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        assert environment["commit"].removesuffix("-dirty") == head.stdout.strip()


def test_only_the_first_process_writes(tmp_path, tiny_config, monkeypatch):
    environment = {"pretrained": None, "parameters": 12, "parallel": "jit", "command": None}
    run = tmp_path / "run"

    def write_all():
        make(run, tiny_config())
        write_environment(run, **environment)
        update_environment(run, seconds_to_first_step=1.5)

    monkeypatch.setattr(jax, "process_index", lambda: 1)
    write_all()
    assert not run.exists()
    monkeypatch.setattr(jax, "process_index", lambda: 0)
    write_all()
    before = files(run)
    assert before.keys() == {"config.json", "processor.json", "environment.json"}
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    make(run, tiny_config(seed=3))
    write_environment(run, **environment | {"parameters": 13})
    update_environment(run, seconds_to_first_step=2.5)
    assert files(run) == before


def test_added_facts_join_the_environment(tmp_path):
    write_environment(tmp_path, pretrained=None, parameters=12, parallel="jit", command=None)
    before = json.loads((tmp_path / "environment.json").read_text())
    update_environment(tmp_path, seconds_to_first_step=1.5)
    assert json.loads((tmp_path / "environment.json").read_text()) == before | {"seconds_to_first_step": 1.5}


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


def test_read_config_gives_back_what_update_made(tmp_path, tiny_config, tiny_gpt):
    changes = {"model.width": 16, "task.sample_prompt": "a", "data.few_lengths": False}
    config = update(tiny_config(model=tiny_gpt), **changes)
    make(tmp_path, config)
    assert isinstance(read_config(tmp_path), TrainConfig)
    assert read_config(tmp_path) == config


def test_a_config_of_an_untrusted_package_is_not_said_to_be_of_another_version(tmp_path, tiny_config, tiny_gpt):
    config = to_json(tiny_config(model=tiny_gpt))
    (tmp_path / "config.json").write_text(json.dumps(config | {"model": {"type": "others:Model"}}), encoding="utf-8")
    with pytest.raises(
        ConfigError, match=r"config\.json cannot be read: config\.model: type 'others:Model' is not in a"
    ):
        read_config(tmp_path)
