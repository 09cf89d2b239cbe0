"""Config fields that depend on the device of a run's start."""

from pathlib import Path

import jax

from train.config import TrainConfig, update
from train.run import folder as run_folder


def for_device(config: TrainConfig, device: jax.Device, workdir: Path | None = None) -> TrainConfig:
    """The config with `data.few_lengths`, if it is not given: that of the resumed run, or else this device's.

    The run records it, and so continues with the same batches on any other device.

    Raises: RunMismatchError when the folder's config cannot be read.
    """
    few = config.data.few_lengths
    if few is None and workdir is not None and (workdir / run_folder.CONFIG_FILE).exists():
        few = run_folder.config_json(workdir)["data"].get("few_lengths")
    if few is None:
        few = device.platform in ("gpu", "tpu")
    return update(config, **{"data.few_lengths": few})
