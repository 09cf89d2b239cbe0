import types

import pytest

from train.config import update
from train.run.device import for_device
from train.run.folder import RunMismatchError

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


@pytest.mark.parametrize("content", ["[]", "{}", '{"data": 3}', "{"])
def test_a_broken_config_of_the_folder_is_named(tiny_config, tmp_path, quick_fit, content):
    (tmp_path / "config.json").write_text(content)
    named = r"config\.json(, line 1: not JSON|: expected an object| is not the config of a run)"
    with pytest.raises(RunMismatchError, match=named):
        quick_fit(tiny_config(), tmp_path)
