"""`python -m benchmarks.int8 RUN...`: what 8 bits a weight cost language models in their loss on the validation split.

It writes docs/results/int8.json and the table of docs/weights.md.
"""

import datetime
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from benchmarks.markdown import with_table
from jaxnlp.cli.messages import exit_status
from jaxnlp.corpus import NumpyBatch
from jaxnlp.runs import load_run
from jaxnlp.tasks import Trained
from train.run import folder as run_folder
from train.run.machine import commit, device_name, short_commit

PAGE, RESULTS = Path("docs/weights.md"), Path("docs/results/int8.json")
MARKERS = ("<!-- begin int8 -->", "<!-- end int8 -->")


def mean_loss(trained: Trained, batches: Sequence[NumpyBatch]) -> float:
    """The mean negative log-likelihood of the targets, in nats a token, with the parameters of inference."""
    model: Any = trained.model

    @jax.jit
    def totals(params: Any, batch: NumpyBatch) -> tuple[jax.Array, jax.Array]:
        scores = jax.nn.log_softmax(model.apply({"params": params}, batch["tokens"]), axis=-1)
        found = jax.numpy.take_along_axis(scores, batch["targets"][..., None], axis=-1)[..., 0]
        mask = batch["loss_mask"].astype(found.dtype)
        return -(found * mask).sum(), mask.sum()

    pairs = [totals(trained.inference_params, batch) for batch in batches]
    loss, count = (sum(map(float, each)) for each in zip(*pairs, strict=True))
    return loss / count


def row_of(run: Path) -> dict[str, Any]:
    """The losses of one run. Raises: RunError when it is not one; ValueError for a model that does not generate."""
    trained, config = load_run(run), run_folder.read_config(run)
    batches = config.data.load(config.seed, trained.processor).split("validation").batches
    return {
        "run": config.recipe,
        "loss": mean_loss(trained, batches),
        "loss_int8": mean_loss(trained.rounded("int8"), batches),
        "device": device_name(),
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as a Markdown table, with the machine."""
    where = rows[0]
    lines = [
        f"Measured on {where['device']}, {where['date']}, at commit {short_commit(where['commit'])}.",
        "",
        "| run | validation loss, nats | in 8 bits | difference |",
        "| --- | ---: | ---: | ---: |",
    ]
    for row in rows:
        before, after = row["loss"], row["loss_int8"]
        lines.append(f"| `{row['run']}` | {before:.4f} | {after:.4f} | {after - before:+.4f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    runs = [Path(run) for run in sys.argv[1:]]
    if not runs:
        raise ValueError("give the folders of runs: python -m benchmarks.int8 RUN...")
    RESULTS.write_text(json.dumps([row_of(run) for run in runs], indent=1) + "\n", encoding="utf-8")
    page, recorded = PAGE.read_text(encoding="utf-8"), json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(with_table(page, table(recorded), MARKERS), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(exit_status(main))
