"""The config of a training run."""

import dataclasses
from typing import Any, Literal

import tyro

from data import DataConfig
from data.masked_text import MaskedText
from data.text_tasks import TextTasksData
from jaxnlp.models import ModelConfig
from jaxnlp.models.bert import BertConfig, BertModelConfig
from jaxnlp.models.bert_pretraining import BertPretrainingConfig
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.models.text_tasks import TextTasksConfig
from jaxnlp.text.tasks import TASKS
from train.objectives import LossConfig
from train.optimizer import OptimizerConfig


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Everything that decides the numbers of a run: two runs of equal configs on equal machines give equal bits."""

    recipe: tyro.conf.Fixed[str]
    """The recipe it came from."""

    data: DataConfig
    model: ModelConfig
    objective: Literal["next_token", "next_token_carried", "text_tasks", "masked_tokens"] = "next_token"
    """What is minimised, by its name in train/objectives.py."""
    loss: LossConfig = dataclasses.field(default_factory=LossConfig)
    optimizer: OptimizerConfig = dataclasses.field(default_factory=OptimizerConfig)
    ema_decay: float | None = None
    """Keep a moving average of the parameters with this decay, and evaluate and sample with it; None = don't."""
    average_after_stall: int | None = None
    """Evaluate and sample with the mean of all parameters since the validation loss stalled: since it was above the
    lowest of those more than this many evaluations before (NT-ASGD, with the optimizer sgd); None = don't."""
    accumulation_steps: int = 1
    """Parts that a batch is cut into, one gradient at a time: less memory, the same update. Parts weigh by their rows;
    of masked_tokens, whose rows have more and fewer pieces to guess, the update is about the same."""
    gradient_surgery: bool = False
    """Several tasks in a step (data.schedule together): take from each task's gradient what works against another's,
    before they are added (PCGrad)."""
    nonfinite: Literal["stop", "skip"] = "stop"
    """On a NaN or infinite loss or gradient: stop with an error, or skip the update and count it."""

    init_from: str | None = None
    """Begin with the parameters of the run in this folder, its newest checkpoint's; None = with random ones."""
    best_by: Literal["loss", "exact_match", "mean_score"] = "loss"
    """What the best checkpoint has on the validation split: the lowest loss, the most questions answered right, or of
    text tasks the highest mean of accuracies and of (1 + Pearson) / 2."""

    total_steps: int = 1000
    """Updates in the run."""
    seed: int = 0
    """Decides initial parameters, dropout and data order."""

    evaluate_every_steps: int = 250
    """Steps between two evaluations on the validation split; the last step is always evaluated."""
    sample_prompt: str | None = None
    """Continue this prompt at each evaluation, for the report; None = no samples."""
    sample_length_tokens: int = 200
    """Tokens that each such sample adds."""
    log_every_steps: int = 10
    """Steps between two lines of metrics."""
    checkpoint_every_steps: int = 250
    """Steps between two checkpoints: what a killed run loses at most. Each evaluation saves one too."""
    keep_checkpoints: int = 2
    """Newest checkpoints kept, beside the best on the validation split."""

    def __post_init__(self):
        for name in (
            "accumulation_steps",
            "total_steps",
            "evaluate_every_steps",
            "sample_length_tokens",
            "log_every_steps",
            "checkpoint_every_steps",
            "keep_checkpoints",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.ema_decay is not None and not 0.0 < self.ema_decay < 1.0:
            raise ValueError(f"ema_decay must lie in (0, 1) or be None, got {self.ema_decay}")
        if self.average_after_stall is not None and self.average_after_stall < 0:
            raise ValueError(f"average_after_stall must be at least 0 or None, got {self.average_after_stall}")
        if self.average_after_stall is not None and self.ema_decay is not None:
            raise ValueError("a run keeps one average: give ema_decay or average_after_stall, and None for the other")
        recurrent = isinstance(self.model, RecurrentLMConfig)
        if recurrent != (self.objective == "next_token_carried"):
            raise ValueError(
                f"the objective next_token_carried is for recurrent models, and theirs alone; got {self.objective} for "
                f"{type(self.model).__name__}"
            )
        if isinstance(self.model, TextTasksConfig) != (self.objective == "text_tasks"):
            raise ValueError(
                f"the objective text_tasks is for models of text tasks, and theirs alone; got {self.objective} for "
                f"{type(self.model).__name__}"
            )
        asked = getattr(self.data, "tasks", None)
        if isinstance(self.model, TextTasksConfig) and asked != self.model.tasks:
            raise ValueError(
                f"data.tasks {asked} are not model.tasks {self.model.tasks}; give both, for example --data.tasks sst "
                "--model.tasks sst"
            )
        pretraining = isinstance(self.model, BertPretrainingConfig)
        parts = (pretraining, isinstance(self.data, MaskedText), self.objective == "masked_tokens")
        if any(parts) and not all(parts):
            raise ValueError(
                f"the objective masked_tokens is for BERT's pretraining on masked texts, and theirs alone; got "
                f"{self.objective} for {type(self.model).__name__} on {type(self.data).__name__}"
            )
        if isinstance(self.model, BertModelConfig) and self.sample_prompt is not None:
            raise ValueError(f"a BERT does not continue texts: sample_prompt must be None, got {self.sample_prompt!r}")
        schedule = getattr(self.data, "schedule", None)
        if self.gradient_surgery and (schedule != "together" or len(asked or ()) < 2):
            raise ValueError(
                "gradient_surgery needs the gradients of two tasks or more in each step; give --data.schedule together "
                f"and several tasks, got the schedule {schedule} and the tasks {asked}"
            )
        if self.loss.task_weights and self.objective != "text_tasks":
            raise ValueError(f"loss.task_weights are for text_tasks, got {self.loss.task_weights} for {self.objective}")
        if isinstance(self.data, TextTasksData):
            self._check_tasks(self.data)
        if self.loss.sampled_tokens is not None and pretraining:
            raise ValueError("loss.sampled_tokens is for language models; masked_tokens scores few tokens of a text")
        pulled = self.loss.activation_regularisation or self.loss.temporal_activation_regularisation
        if pulled and not recurrent:
            raise ValueError("loss.activation_regularisation and its temporal kin are for recurrent models")
        if self.accumulation_steps > 1 and self.objective == "next_token_carried":
            raise ValueError(
                "next_token_carried takes a batch whole, since its rows carry their state: accumulation_steps must be "
                f"1, got {self.accumulation_steps}"
            )
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must lie in [0, 2^32), got {self.seed}")
        length, context = (getattr(self.data, "sequence_length", None), getattr(self.model, "context_length", None))
        if length is not None and context is not None and length > context:
            raise ValueError(
                f"data.sequence_length {length} exceeds model.context_length {context}; set both, for example "
                f"--data.sequence-length {length} --model.context-length {length}"
            )
        if isinstance(self.model, BertModelConfig) and self.model.pretrained is None:
            check_positions(self.data, self.model.encoder)

    def _check_tasks(self, data: TextTasksData) -> None:
        """What the losses of text tasks have no use for, and schedules that do not come to each of them."""
        if self.loss.sampled_tokens is not None:
            raise ValueError("loss.sampled_tokens is for language models; text_tasks has a few classes at most")
        for name in ("z_loss", "chunk_tokens"):
            if getattr(self.loss, name):
                raise ValueError(f"loss.{name} is for losses over vocabularies; text_tasks has a few classes at most")
        if self.loss.label_smoothing and all(TASKS[task].kind != "classification" for task in data.tasks):
            raise ValueError(
                f"loss.label_smoothing is for classifications, and {', '.join(data.tasks)} has none: it must be 0, got "
                f"{self.loss.label_smoothing}"
            )
        self.loss.weights_of(data.tasks)
        tasks = len(data.tasks)
        if data.schedule == "sequential" and tasks > 1 and data.schedule_steps * tasks > self.total_steps:
            raise ValueError(
                f"data.schedule sequential with data.schedule_steps {data.schedule_steps} does not come to each of "
                f"{', '.join(data.tasks)} within total_steps {self.total_steps}; give fewer steps to each"
            )


def check_positions(data: DataConfig, encoder: BertConfig) -> None:
    """Raises ValueError when texts may be longer than an encoder reads; a pretrained one's length is known later."""
    for name in ("sequence_length", "longest_tokens"):
        length = getattr(data, name, 0)
        if length > encoder.max_positions:
            raise ValueError(
                f"data.{name} {length} exceeds the encoder's {encoder.max_positions} positions "
                f"(model.encoder.max_positions): give --data.{name.replace('_', '-')} {encoder.max_positions}"
            )


def update(config: Any, **changes: Any) -> Any:
    """A copy of a config with fields replaced, all at once, dotted names reaching inside: `**{"model.width": 64}`."""
    whole = {name: value for name, value in changes.items() if "." not in name}
    inner: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        head, _, rest = name.partition(".")
        if rest:
            inner.setdefault(head, {})[rest] = value
    for head, fields in inner.items():
        whole[head] = update(whole.get(head, getattr(config, head)), **fields)
    return dataclasses.replace(config, **whole)
