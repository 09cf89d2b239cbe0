import dataclasses
import os
import resource

import jax
import pytest

from jaxnlp.models.gpt import GPTConfig
from jaxnlp.saving.serialization import ConfigError
from train.loop import fit
from train.run import memory
from train.run.init_from import begin
from train.run.memory import batch_bytes, bytes_of, device_memory, host_memory, require_memory
from train.run.setup import set_up

TOTAL = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_a_run_that_cannot_fit_is_refused_before_anything_is_allocated_with_what_to_lower(
    tiny_config, tmp_path, monkeypatch
):
    monkeypatch.setattr("train.parallel.Parallel.initialise", lambda *_: pytest.fail("the state was allocated"))
    config = tiny_config(model=GPTConfig(num_layers=2, num_heads=2, width=1_000_000, context_length=8))
    message = (
        r"the run needs at least [\d,]+\.\d GiB of memory \(parameters [\d,.]+ GiB, moments and averages [\d,.]+ GiB, "
        r"a batch 0\.0 GiB\), but there are [\d.]+ GiB; lower model\.width, model\.num_layers or data\.batch_size$"
    )
    with pytest.raises(ConfigError, match=message):
        fit(config, tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize("room", [0, 1])
def test_a_run_that_just_fits_is_not_refused(tiny_config, monkeypatch, room):
    setup = set_up(begin(tiny_config()))
    needed = bytes_of(setup.abstract_state) + batch_bytes(setup)
    monkeypatch.setattr(memory, "device_memory", lambda: needed - 1 + room)
    if room:
        require_memory(setup)
    else:
        with pytest.raises(ConfigError):
            require_memory(setup)


def test_moments_and_averages_are_counted(tiny_config):
    plain, averaged = (set_up(begin(tiny_config(ema_decay=decay))) for decay in (None, 0.9))
    params = bytes_of(plain.abstract_state.params)
    assert bytes_of(plain.abstract_state) > 3 * params  # Adam's
    assert bytes_of(averaged.abstract_state) - bytes_of(plain.abstract_state) == params


def test_a_batch_that_is_not_made_is_counted_as_its_tokens_and_others_as_they_are(tiny_config):
    setup = set_up(begin(tiny_config()))
    batch = next(iter(setup.corpus.train))
    assert batch_bytes(setup) == bytes_of(dict(batch))
    unknown = dataclasses.replace(setup.corpus, of_each_shape=None)
    assert batch_bytes(setup._replace(corpus=unknown)) == batch["tokens"].size * 4


def groups(root, own, **limits):
    """A machine whose process is in these control groups."""
    (root / "proc" / "self").mkdir(parents=True)
    (root / "proc" / "self" / "cgroup").write_text("".join(f"{line}\n" for line in own))
    for name, limit in limits.items():
        file = root / "sys" / "fs" / "cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{limit}\n")
    return root


@pytest.mark.parametrize(
    ("own", "limits", "expected"),
    [
        (["0::/"], {"memory.max": 5000}, 5000),
        (["0::/a/b"], {"a/b/memory.max": "max", "a/memory.max": 4000}, 4000),
        (["0::/a/b"], {"a/b/memory.max": 3000, "a/memory.max": 4000}, 3000),
        (["4:memory:/a", "0::/"], {"memory/memory.limit_in_bytes": 2000}, 2000),
        (["4:cpu,memory:/a"], {"memory/a/memory.limit_in_bytes": 1000}, 1000),
        (["4:cpu:/a"], {"memory/a/memory.limit_in_bytes": 1000}, TOTAL),
        (["0::/"], {"memory.max": 2**63 - 4096}, TOTAL),
        ([], {}, TOTAL),
    ],
)
def test_the_memory_is_that_of_the_control_group_with_the_lowest_limit(tmp_path, own, limits, expected):
    assert host_memory(groups(tmp_path, own, **limits)) == expected


def test_swap_is_memory_too(tmp_path):
    root = groups(tmp_path, ["0::/"], **{"memory.max": 5000})
    (root / "proc" / "meminfo").write_text("MemTotal:  24684084 kB\nSwapTotal:       3 kB\n")
    assert host_memory(root) == 5000 + 3 * 1024


def test_a_limit_of_the_process_counts(monkeypatch, tmp_path):
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (7, 8) if kind == resource.RLIMIT_AS else (1, 1))
    assert host_memory(tmp_path) == 7


def test_an_accelerator_has_the_memory_that_its_allocator_may_take(monkeypatch):
    class Device:
        platform = "gpu"

        def __init__(self, stats):
            self._stats = stats

        def memory_stats(self):
            return self._stats

    monkeypatch.setattr(jax, "local_devices", lambda: [Device({"bytes_limit": 5}), Device({"bytes_limit": 7})])
    assert device_memory() == 12
    for unknown in (None, {}):
        monkeypatch.setattr(jax, "local_devices", lambda unknown=unknown: [Device({"bytes_limit": 5}), Device(unknown)])
        assert device_memory() is None
