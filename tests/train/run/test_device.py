import json
import types

import pytest

from jaxnlp.saving.checkpoints import read_record, read_run_files
from train.config import TrainConfig, update
from train.run.device import for_device
from train.run.folder import RunMismatchError, read_config

CPU, GPU = (types.SimpleNamespace(platform=platform) for platform in ("cpu", "gpu"))


def test_batches_have_few_lengths_on_accelerators_unless_the_user_says_otherwise(tiny_config):
    config = tiny_config()
    assert [for_device(config, device).data.few_lengths for device in (CPU, GPU)] == [False, True]
    for chosen in (update(config, **{"data.few_lengths": few}) for few in (False, True)):
        assert for_device(chosen, GPU) == for_device(chosen, CPU) == chosen


@pytest.mark.sweep(1)
@pytest.mark.parametrize(("first", "then"), [(CPU, GPU), (GPU, CPU)], ids=["cpu_gpu", "gpu_cpu"])
def test_a_run_continues_with_its_batches_on_another_device(tiny_config, quick_fit, tmp_path, monkeypatch, first, then):
    config = tiny_config(total_steps=3, evaluate_every_steps=3)
    monkeypatch.setattr("train.loop.for_device", lambda config, _, workdir: for_device(config, first, workdir))
    quick_fit(config, tmp_path)
    assert for_device(config, then, tmp_path) == for_device(config, first)


@pytest.mark.thorough
def test_a_run_of_a_version_without_few_lengths_continues_with_all_lengths(
    tiny_config, quick_fit, tmp_path, monkeypatch
):
    def identity_before(config):
        fields = identity(config)
        del fields["data"]["few_lengths"]
        return fields

    identity, config = TrainConfig.identity, tiny_config(total_steps=3, evaluate_every_steps=3)
    with monkeypatch.context() as before:
        before.setattr(TrainConfig, "identity", identity_before)
        quick_fit(config, tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    del fields["data"]["few_lengths"]
    (tmp_path / "config.json").write_text(json.dumps(fields))
    read_run_files(tmp_path, read_record(tmp_path, 3))
    monkeypatch.setenv("JAXNLP_TRUST", "tests")
    assert read_config(tmp_path).data.few_lengths is False
    monkeypatch.setattr("train.loop.for_device", lambda config, _, workdir: for_device(config, GPU, workdir))
    longer = update(config, total_steps=6, evaluate_every_steps=3)
    assert quick_fit(longer, tmp_path, extend=True).state.step == 6  # its start writes config.json again
    assert json.loads((tmp_path / "config.json").read_text())["data"]["few_lengths"] is False
    for step in (3, 6):  # the record of before, and one of now
        read_run_files(tmp_path, read_record(tmp_path, step))
    with pytest.raises(RunMismatchError, match=r"\n  data\.few_lengths: False -> True$"):
        quick_fit(update(longer, **{"data.few_lengths": True}), tmp_path)


@pytest.mark.parametrize("content", ["[]", "{}", '{"data": 3}', "{"])
def test_a_broken_config_of_the_folder_is_named(tiny_config, tmp_path, quick_fit, content):
    (tmp_path / "config.json").write_text(content)
    named = r"config\.json(, line 1: not JSON|: expected an object| is not the config of a run)"
    with pytest.raises(RunMismatchError, match=named):
        quick_fit(tiny_config(), tmp_path)
