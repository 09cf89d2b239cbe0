"""The config of a training run."""

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import tyro

from data import DataConfig
from jaxnlp.cli.suggestions import suggestion
from jaxnlp.config import Choice, Config, Count, Natural, ProperFraction, Seed, UserPath, changed
from jaxnlp.models import ModelConfig
from jaxnlp.saving.serialization import to_json
from jaxnlp.tasks import Task
from train.optimizer import AdamW, OptimizerConfig

BOOKKEEPING = ("log_every_steps", "evaluate_every_steps", "checkpoint_every_steps", "keep_checkpoints", "stop_after")
"""Fields that usually do not affect a run's numbers; see `TrainConfig.identity`."""


@dataclasses.dataclass(frozen=True)
class TrainConfig(Config):
    """The config of a run. Equal configs on equal machines give equal bits."""

    usual = ("init_from", "total_steps", "seed", "evaluate_every_steps")

    recipe: tyro.conf.Fixed[str]
    """Name of the recipe."""

    data: DataConfig
    model: ModelConfig
    task: Task
    optimizer: OptimizerConfig = dataclasses.field(default_factory=AdamW)
    """adamw: Adam with decoupled weight decay. muon: Muon for hidden matrices, AdamW for all other parameters. rmsprop:
    gradients divided by their root mean square. sgd: SGD, optionally with momentum. docs/optimizers.md explains
    them."""
    ema_decay: ProperFraction | None = None
    """Decay of a moving average of the parameters, for evaluation and samples; None = no average."""
    nt_asgd_patience: Natural | None = None
    """NT-ASGD with a patience of N evaluations: once the validation loss exceeds the lowest loss of all but the N
    previous evaluations, average the parameters of all later steps, and evaluate the average. The paper uses the
    optimizer sgd. None = no average."""
    accumulation_steps: Count = 1
    """Number of parts of a batch whose gradients are accumulated: less memory for the same batch."""
    nonfinite: Literal["stop", "skip"] = "stop"
    """On a NaN or infinite loss or gradient: stop with an error, or skip the update and count it."""

    init_from: UserPath | None = None
    """Start from the parameters of a run's folder (its latest checkpoint), of a folder of pretrained weights, or of a
    name on the Hugging Face Hub; None = random parameters."""
    init_ignore: tuple[str, ...] = ()
    """Pretrained tensors to ignore, by their names or prefixes, such as heads of other tasks."""
    init_new_tokens: tuple[str, ...] = ()
    """Texts to add as new tokens to the pretrained tokenizer, such as terms of a field. Their embeddings start near the
    mean of the others."""
    best_metric: str = "loss"
    """Metric of the task that selects the best checkpoint on the validation split; the loss breaks ties."""

    total_steps: Count = 1000
    """Number of training steps."""
    stop_after: Count | None = None
    """Early stopping: end the run after N evaluations without a better best metric; None = train all steps."""
    seed: Seed = 0
    """Seed of initial parameters, dropout and data order."""

    evaluate_every_steps: Count = 250
    """Evaluation interval in steps, on the validation split; the last step is always evaluated."""
    log_every_steps: Count = 10
    """Logging interval in steps."""
    checkpoint_every_steps: Count = 250
    """Checkpoint interval in steps: a killed run loses at most this many. Each evaluation also saves a checkpoint."""
    keep_checkpoints: Count = 2
    """Number of latest checkpoints to keep, in addition to the best one."""

    def __post_init__(self):
        super().__post_init__()
        if self.stop_after is not None and self.evaluate_every_steps >= self.total_steps:
            raise ValueError(
                f"stop_after needs evaluations before the last step; set evaluate_every_steps, which is "
                f"{self.evaluate_every_steps}, to less than total_steps, {self.total_steps}"
            )
        if self.nt_asgd_patience is not None and self.ema_decay is not None:
            raise ValueError("ema_decay and nt_asgd_patience exclude each other; set one of them to None")
        if self.init_ignore and self.init_from is None:
            raise ValueError(f"init_ignore applies only to pretrained weights; set init_from, got {self.init_ignore}")
        self._check_new_tokens()
        self.task.check(self.model, self.data)
        self.data.check_steps(self.total_steps)
        longest, room = self.data.max_length, self.model.max_length
        if longest is not None and room is not None and longest > room:
            given = "" if self.init_from is None else ", unless init_from gives it"
            raise ValueError(
                f"the data's inputs have up to {longest} tokens, but the model reads at most {room}; lower "
                f"data.{self.data.length_field}, or raise model.{self.model.length_field}{given}"
            )

    def _check_new_tokens(self) -> None:
        """Raises: ValueError for tokens that are empty or given twice."""
        tokens = self.init_new_tokens
        if tokens and self.init_from is None:
            raise ValueError(f"init_new_tokens applies only to pretrained weights; set init_from, got {tokens}")
        for index, token in enumerate(tokens):
            if not token.strip():
                raise ValueError(f"init_new_tokens must have texts, got {token!r}")
            if token in tokens[:index]:
                raise ValueError(f"init_new_tokens has {token!r} twice; give each token once")

    def identity(self) -> dict[str, Any]:
        """The fields that determine the run's numbers, as JSON. Others may change on resume: bookkeeping,
        `data.num_workers`, paths of the data, `model.compute`, and `total_steps` if the learning rate does not depend
        on it."""
        others, schedule = set(BOOKKEEPING), self.optimizer.schedule
        if self.nt_asgd_patience is not None or schedule.scale(()) is not None:
            # An evaluation may start averaging or find a plateau, and the last step is always evaluated.
            others.remove("evaluate_every_steps")
        elif not schedule.ends_with_run:
            others.add("total_steps")
        fields = {name: value for name, value in to_json(self).items() if name not in others}
        for section, free in (("model", ("compute",)), ("data", ("num_workers", *self.data.places()))):
            fields[section] = {name: value for name, value in fields[section].items() if name not in free}
        return fields


def _names_inside(config: Any, prefix: str = "") -> Iterator[str]:
    """The dotted names of the fields of nested configs."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if prefix:
            yield f"{prefix}{field.name}"
        if dataclasses.is_dataclass(value):
            yield from _names_inside(value, f"{prefix}{field.name}.")


def update(config: Any, **changes: Any) -> Any:
    """A copy of a config with fields replaced, all at once; dotted names set nested fields: `**{"model.width": 64}`;
    the name of a kind sets a nested config: `optimizer="muon"`. NumPy's numbers become Python's.

    Unchanged fields that no longer apply get their defaults.

    Raises: ValueError for an unknown field, and for a value that the config refuses.
    """
    known = [field.name for field in dataclasses.fields(config)]
    whole: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {}
    for name, given in changes.items():
        value = given.item() if isinstance(given, np.generic) else given
        head, _, rest = name.partition(".")
        if head not in known:
            inside = [name for name in _names_inside(config) if name.rpartition(".")[2] == head]
            hint = f"did you mean {' or '.join(inside)}?" if inside else suggestion(head, known)
            raise ValueError(f"{type(config).__name__} has no field {head}; {hint}")
        if rest:
            inner.setdefault(head, {})[rest] = value
        elif isinstance(value, str) and isinstance(getattr(config, head), Choice):
            whole[head], inner[head] = getattr(config, head).as_kind(value), inner.get(head, {})
        else:
            whole[head] = value
    for head, fields in inner.items():
        whole[head] = update(whole.get(head, getattr(config, head)), **fields)
    missing = sorted({*known} - {*whole} - {*dir(config)})
    if missing:  # in a config of another kind
        raise ValueError(f"{config.full_name(missing[0])} is missing")
    return changed(config, whole, whole)
