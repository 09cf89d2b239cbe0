"""`jaxnlp average RUN...`: the mean of the parameters of several runs, or of the checkpoints of one, as a run."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from jaxnlp.cli.messages import program_name
from jaxnlp.cli.options import read_options
from jaxnlp.config import Config
from jaxnlp.inference.caches import use_compilation_cache
from jaxnlp.runs import load_run, read_config_json
from jaxnlp.saving.atomic_files import refuse_contents, require_place
from jaxnlp.saving.checkpoint_reading import RunError, checkpoint_steps, read_record, read_run_files
from jaxnlp.saving.serialization import differences
from jaxnlp.tasks import Evaluation, Trained
from jaxnlp.typing import Params
from train.evaluate import evaluated
from train.evaluation.validation import checkpoint_score
from train.parallel import make_parallel
from train.run import folder as run_folder
from train.run.checkpoint_writing import Checkpoints
from train.run.continuation import data_of
from train.run.folder import RunSpec
from train.run.progress import RunProgress
from train.step import TrainState

PROGRAM = f"{program_name()} average"
FACTS = ("parameters", "compute", "types", "metrics", "progress", "best_metric")
"""Entries of environment.json that also hold for the average."""
FEW = 3
"""Maximum number of differences that a message names."""


@dataclasses.dataclass(frozen=True)
class Options(Config):
    """Averages the parameters of runs, and writes the result as a run's folder.

    The runs need the same architecture and the same processor. Their best checkpoints are averaged, or all of a single
    run. The members and the result are scored on the validation data of the first run. Averages need runs from the same
    pretrained weights; those from different random weights rarely work.

    Source: Wortsman et al. 2022, the uniform soup.
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN ...")] = ()
    """Folders of runs; one = its checkpoints."""
    out: Path | None = None
    """The folder of the result: new, or empty."""


class Member(NamedTuple):
    """A checkpoint of a run."""

    folder: Path
    checkpoint: Any

    def load(self) -> Trained:
        """The model."""
        return load_run(self.folder, checkpoint=self.checkpoint)


def members_of(runs: Sequence[Path]) -> list[Member]:
    """The best checkpoints of runs, or all of one run. Raises: RunError for fewer than two, and for runs that differ or
    are the same."""
    for index, run in enumerate(runs):
        read_config_json(run)  # refuses other folders
        if any(run.samefile(other) for other in runs[:index]):
            raise RunError(f"{run} is given twice; give each run once")
    if len(runs) == 1:
        members = [Member(runs[0], step) for step in checkpoint_steps(runs[0])]
        if len(members) < 2:
            raise RunError(f"{runs[0]} has {len(members)} checkpoint; give several runs, or one with several")
        return members
    for run in runs[1:]:
        changed = differences_of(runs[0], run)
        if changed:
            more = f"; and {len(changed) - FEW} more" if len(changed) > FEW else ""
            raise RunError(
                f"{runs[0]} and {run} differ in {'; '.join(changed[:FEW])}{more}; only runs with equal "
                "architecture and processor can be averaged"
            )
        run_folder.check_held_out(runs[0], run)
    return [Member(run, "best") for run in runs]


def differences_of(run: Path, other: Path) -> list[str]:
    """Differences that prevent an average of two runs: in task, architecture or processor."""
    first, second = (_identity(folder) for folder in (run, other))
    return [line if len(line) <= 100 else f"{line[:100]} ..." for line in differences(first, second)]


def _identity(folder: Path) -> dict[str, Any]:
    config = run_folder.read_config(folder)
    kinds = {"task": type(config.task).__name__, "model": type(config.model).__name__}
    processor = run_folder.read_json(folder / run_folder.PROCESSOR_FILE)
    return kinds | {"architecture": config.model.architecture(), "processor": processor}


def mean_of(trees: Sequence[Params]) -> Params:
    """The mean of trees of arrays with equal shapes, each in its own type, with sums in float64."""
    return jax.tree.map(lambda *leaves: np.mean(leaves, axis=0, dtype=np.float64).astype(leaves[0].dtype), *trees)


def average(runs: Sequence[Path], out: Path) -> None:
    """Writes the average of runs as a run, and prints the scores of the members and of the average.

    Raises:
      RunError: for folders that are not runs, and runs that differ.
      RunMismatchError: when the data of the first run has changed.
      OSError: when the folder is not empty or cannot be written.
    """
    run_folder.check_path(out)
    refuse_contents(out)
    require_place(out / run_folder.METRICS_FILE)
    members = members_of(runs)
    first, config = members[0].load(), run_folder.read_config(runs[0])
    assert first.step is not None
    record = read_record(runs[0], first.step)
    corpus = data_of(runs[0], config, first.processor, record)
    evaluator, layout = config.task.evaluators["validation"](), make_parallel("jit")

    def scored(name: str, trained: Trained) -> Evaluation:
        split, training = corpus.split("validation"), corpus.splits.get("train")
        evaluation = evaluated(trained, evaluator, split, "validation", corpus=corpus, training=training, layout=layout)
        print(f"{name}:", *(f"{metric} {value.value:.4f}" for metric, value in evaluation.metrics.items()), flush=True)
        return evaluation

    names, params = [], []
    for member in members:
        trained = member.load()
        names.append(f"{member.folder}, step {trained.step}")
        scored(names[-1], trained)
        params.append(jax.device_get(trained.params))
    soup = dataclasses.replace(first, params=mean_of(params), folder=None)
    evaluation = scored(f"average, {out}", soup)
    settings, processor = read_run_files(runs[0], record)
    spec = RunSpec(settings, record.identity, processor, corpus.description, corpus.fingerprint)
    run_folder.create(out, spec)
    environment = run_folder.read_environment(runs[0])
    facts = {name: environment[name] for name in FACTS if name in environment}
    run_folder.write_environment(out, pretrained=None, averaged=names, **facts)
    row = {"step": first.step, "split": "validation"} | {name: one.value for name, one in evaluation.metrics.items()}
    run_folder.write_text(out / run_folder.METRICS_FILE, json.dumps(row) + "\n")
    kind = config.task.metrics(corpus.processor, corpus.split("validation"))[config.best_metric]
    zero = jnp.zeros((), jnp.int32)
    step, key = jnp.asarray(first.step, jnp.int32), jax.random.key(config.seed)
    state = TrainState(step, key, soup.params, {}, None, zero, zero)
    progress = RunProgress(state, first.step, record.train_seconds)
    with Checkpoints(out, keep=1) as checkpoints:
        checkpoints.save(state, spec, progress, checkpoint_score(evaluation, config.best_metric, kind), {})


def main(arguments: list[str]) -> int:
    """Averages the runs. Returns: the exit status. Raises: ValueError, OSError."""
    (options,) = read_options([Options], arguments, program=PROGRAM, description=Options.__doc__ or "")
    if not options.runs or options.out is None:
        raise ValueError("give the folders of runs, and the folder of their average with --out")
    use_compilation_cache(None)
    average(options.runs, options.out)
    return 0
