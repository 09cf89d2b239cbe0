"""`python -m benchmarks.int8 [RUN...]`: what 8 bits a weight cost language models in their validation loss,
and a BERT in time. Without runs, their recorded losses stay.

It writes docs/results/int8.json and the tables of docs/weights.md.
"""

import datetime
import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from benchmarks.encode import TEXTS
from benchmarks.foreign import sentence, with_folder
from benchmarks.markdown import with_table
from jaxnlp.cli.messages import exit_status
from jaxnlp.corpus import NumpyBatch
from jaxnlp.models.bert import Bert
from jaxnlp.nn.dense import TRANSPOSED
from jaxnlp.ops.quantisation import quantised_rows
from jaxnlp.runs import load_pretrained, load_run
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
        **where_and_when(),
    }


def where_and_when() -> dict[str, Any]:
    """The fields of the machine, the date and the commit."""
    return {"device": device_name(), "date": datetime.date.today().isoformat(), "commit": commit()}


def encoder_rows(model_type: str = "bert", repeats: int = 15) -> list[dict[str, Any]]:
    """The median seconds of an encoder for each of `TEXTS`, in turns with weights of dense layers in 32 and 8 bits."""
    trained = with_folder(load_pretrained, model_type)
    params, config = trained.inference_params["encoder"], trained.model.config
    bert = Bert(config.encoder, len(params["tokens"]["embedding"]), config.compute)
    bits, apply = {"seconds": params, "seconds_int8": in_int8(params)}, jax.jit(bert.apply)
    rows: list[dict[str, Any]] = []
    for texts, words in TEXTS.items():
        batch = trained.processor.vocabulary([sentence(count) for count in words])
        taken: dict[str, list[float]] = {name: [] for name in bits}
        for _ in range(1 + repeats):
            for name, params in bits.items():
                start = time.perf_counter()
                jax.block_until_ready(apply({"params": params}, **batch))
                taken[name].append(time.perf_counter() - start)
        medians = {name: statistics.median(each[1:]) for name, each in taken.items()}  # the first call compiles
        row: dict[str, Any] = {"encoder": model_type, "texts": texts}
        rows.append(row | medians | where_and_when())
    return rows


def in_int8(params: Any) -> Any:
    """Parameters of inference, with the dense layers of blocks in 8 bits."""

    def rounded(path: tuple[Any, ...], x: jax.Array) -> Any:
        return quantised_rows(x) if path[-1].key == TRANSPOSED else x

    return jax.tree_util.tree_map_with_path(rounded, params)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as two Markdown tables, each with its machine."""
    runs, encoders = ([row for row in rows if kind in row] for kind in ("run", "encoder"))
    lines = [
        *measured(runs[0]),
        "| run | validation loss, nats | in 8 bits | difference |",
        "| --- | ---: | ---: | ---: |",
    ]
    for row in runs:
        before, after = row["loss"], row["loss_int8"]
        lines.append(f"| `{row['run']}` | {before:.4f} | {after:.4f} | {after - before:+.4f} |")
    lines += [
        "",
        *measured(encoders[0]),
        "| a BERT-base reads | ms | in 8 bits | times as long |",
        "| --- | ---: | ---: | ---: |",
    ]
    for row in encoders:
        before, after = row["seconds"], row["seconds_int8"]
        lines.append(f"| {row['texts']} | {1e3 * before:.1f} | {1e3 * after:.1f} | {after / before:.2f} |")
    return "\n".join(lines) + "\n"


def measured(row: dict[str, Any]) -> list[str]:
    """The line above a table: where and when its rows were measured."""
    return [f"Measured on {row['device']}, {row['date']}, at commit {short_commit(row['commit'])}.", ""]


def main() -> None:
    recorded = json.loads(RESULTS.read_text(encoding="utf-8"))
    runs = [row_of(Path(run)) for run in sys.argv[1:]] or [row for row in recorded if "run" in row]
    recorded = [*runs, *encoder_rows()]
    RESULTS.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_table(page, table(recorded), MARKERS), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(exit_status(main))
