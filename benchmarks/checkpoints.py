"""`python -m benchmarks.checkpoints`: what a checkpoint costs a run: the pause, the time to write, the memory.

It measures one process, and two that share the state (fsdp), on CPUs, and writes the table of docs/scaling.md.
`python -m benchmarks.checkpoints --table` writes it again from the recorded rows.
"""

import ctypes
import datetime
import gc
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax

from benchmarks.compiled import text_of_words
from benchmarks.markdown import with_table
from jaxnlp.cli.messages import exit_status
from jaxnlp.saving.checkpoint_reading import checkpoint_steps
from train.config import update
from train.parallel import Parallel, make_parallel
from train.recipes import load_recipe
from train.run import folder as run_folder
from train.run.checkpoint_writing import Checkpoints
from train.run.init_from import begin
from train.run.machine import commit, device_name, short_commit
from train.run.processes import ADDRESS, PROCESS, PROCESSES, ProcessOptions, connected
from train.run.setup import Setup, set_up

PAGE, RESULTS = Path("docs/scaling.md"), Path("docs/results/checkpoints.json")
MARKERS = ("<!-- begin checkpoints -->", "<!-- end checkpoints -->")
RUNS = {"one process": 1, "two processes, fsdp": 2}
CHANGES = {
    "data.sequence_length": 64,
    "data.batch_size": 8,
    "model.context_length": 64,
    "model.width": 512,
    "model.num_heads": 8,
    "model.num_layers": 8,
}
"""Of the recipe gpt_text_file: 25 million parameters."""
TIMED_STEPS = 10


def set_up_run(text: Path, folder: Path) -> tuple[Setup, Parallel]:
    """A run of this process, and its layout."""
    config = update(load_recipe("gpt_text_file"), **CHANGES, **{"data.path": text})
    layout = make_parallel("fsdp" if jax.process_count() > 1 else "jit")
    setup = set_up(begin(config, folder), devices=layout.devices)
    return setup, layout.of_model(setup.config.model, setup.abstract_state.params)


def restoring(setup: Setup, layout: Parallel, folder: Path) -> dict[str, float]:
    """Restores twice in a new process. The first time it loads code and starts threads, which stay."""

    def restore() -> None:
        with Checkpoints(folder, keep=1) as checkpoints:
            jax.block_until_ready(checkpoints.resume(setup, layout, iter(setup.corpus.train)).state)

    restore()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # freed memory that is kept would hide what is read
    before, started = _begin_of_a_peak(), time.perf_counter()
    restore()
    return {"restoring_seconds": time.perf_counter() - started, "restoring_bytes": _peak() - before}


def saving(setup: Setup, layout: Parallel, folder: Path) -> dict[str, float]:
    """Trains, and saves while it goes on. The additional memory is that above the peak of training."""
    step = layout.compile_train(setup.step, setup.abstract_state)
    batches: Any = iter(setup.corpus.train)
    with Checkpoints(folder, keep=1) as checkpoints:
        run = checkpoints.resume(setup, layout, batches)
        run_folder.create(folder, setup.spec, setup.begun.typed_model)

        def advance() -> None:
            run.state, output = step(run.state, layout.put_batch(next(batches)))
            run.step += 1
            jax.block_until_ready(output)

        advance()  # which compiles
        _begin_of_a_peak()
        started = time.perf_counter()
        for _ in range(TIMED_STEPS):
            advance()
        step_seconds, saved, training = (time.perf_counter() - started) / TIMED_STEPS, run.step, _peak()
        _begin_of_a_peak()
        started = time.perf_counter()
        checkpoints.save(layout.fetch(run.state), setup.spec, run, None, batches.get_state())
        pause = time.perf_counter() - started
        while saved not in checkpoint_steps(folder):
            advance()
        return {
            "step_seconds": step_seconds,
            "state_bytes": _bytes_here(run.state),
            "pause_seconds": pause,
            "written_seconds": time.perf_counter() - started,
            "steps_meanwhile": run.step - saved,
            "saving_bytes": _peak() - training,
        }


def _bytes_here(tree: Any) -> int:
    """The bytes of the shards that this process has of an array, or of several."""
    return sum(shard.data.nbytes for x in jax.tree.leaves(tree) for shard in x.addressable_shards)


def _begin_of_a_peak() -> int:
    """The resident memory, in bytes; `_peak()` is then the largest from now on."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


PARTS = {"saving": saving, "restoring": restoring}


def rows() -> list[dict[str, Any]]:
    """A row for each process of each run."""
    found = []
    for name, processes in RUNS.items():
        with tempfile.TemporaryDirectory() as temporary:
            text_of_words(Path(temporary) / "text.txt")
            parts = zip(*(_of_processes(part, processes, temporary) for part in PARTS), strict=True)
            found += [{"run": name, "process": n, **saved, **restored} for n, (saved, restored) in enumerate(parts)]
    where = {"device": device_name(), "date": datetime.date.today().isoformat(), "commit": commit()}
    return [row | where for row in found]


def _of_processes(part: str, processes: int, folder: str) -> list[dict[str, float]]:
    """What each of several processes measures of a part."""
    described = {ADDRESS: f"127.0.0.1:{_free_port()}", PROCESSES: str(processes), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "benchmarks.checkpoints", part, folder, str(processes)]
    workers = [
        subprocess.Popen(command, env=os.environ | described | {PROCESS: str(n)}, stdout=subprocess.PIPE)
        for n in range(processes)
    ]
    outputs = [worker.communicate()[0] for worker in workers]
    failed = [number for number, worker in enumerate(workers) if worker.returncode]
    if failed:
        raise RuntimeError(f"{part}: process {failed[0]} of {processes} failed; its output says why")
    return [json.loads(output.splitlines()[-1]) for output in outputs]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table, with the machine."""
    where = rows[0]
    lines = [
        f"Measured on {where['device']}, {where['date']}, at commit {short_commit(where['commit'])}.",
        "",
        "| run | process | MB of the state | ms for a step | ms of pause | s until it is written | steps meanwhile | "
        "copies, saving | s to restore | copies, restoring |",
        "| --- |" + " ---: |" * 9,
    ]
    for row in rows:
        copies = [row[f"{what}_bytes"] / row["state_bytes"] for what in ("saving", "restoring")]
        lines.append(
            f"| {row['run']} | {row['process']} | {row['state_bytes'] / 1e6:.0f} | {row['step_seconds'] * 1e3:.0f} | "
            f"{row['pause_seconds'] * 1e3:.0f} | {row['written_seconds']:.1f} | {row['steps_meanwhile']} | "
            f"{copies[0]:.2f} | {row['restoring_seconds']:.1f} | {copies[1]:.2f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    arguments = sys.argv[1:]
    if len(arguments) == 3:  # a process of `rows`
        folder = Path(arguments[1])
        with connected(ProcessOptions(distributed=int(arguments[2]) > 1)):
            setup, layout = set_up_run(folder / "text.txt", folder / "run")
            print(json.dumps(PARTS[arguments[0]](setup, layout, folder / "run")), flush=True)
        return
    if arguments != ["--table"]:
        RESULTS.write_text(json.dumps(rows(), indent=1) + "\n", encoding="utf-8")
    page, recorded = PAGE.read_text(encoding="utf-8"), json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(with_table(page, table(recorded), MARKERS), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(exit_status(main))
