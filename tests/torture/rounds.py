"""A round: a command, a fault at a moment, then the same command again. The seed decides all of it."""

import contextlib
import dataclasses
import json
import os
import random
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.torture.families import EVALUATE_EVERY, FAMILIES, SAVE_EVERY, TOTAL_STEPS, command, processes, write_text
from tests.torture.starts import Start

SECONDS = 120
"""A start that takes longer hangs."""
ENDINGS = {0: "done", 1: "refused", 2: "refused", 129: "stopped", 130: "stopped", 143: "stopped"}
QUIET = ("loading JAX", "note: ", "warning: ", "process 0 waits at ", "  ")
"""Beginnings of lines that are no errors; those of two blanks belong to the error before them."""
XLA = re.compile(r"[IW]\d{4} ")
"""Notes of XLA's own."""
NAMED = re.compile(r"error: |process \d+ \(.*\) ended with an error: ")
SAME, WARNED, REFUSED, MISSED, FAILED = "same bits", "warned", "refused", "missed", "failed"
"""Outcomes: equal to a run that nobody touched, in every bit; less than that, with a warning; an error in one line,
and after the damage is undone the same bits; the run ended before the moment; anything else."""


class FailedError(Exception):
    """A round shows what it should not."""


@dataclasses.dataclass
class Round:
    """A round.

    Attributes:
      seed: decides everything that is drawn.
      fault: its name.
      family: of the run.
      moment: when the fault happens.
      place: the round's folder.
      shared: the folder with what all rounds share: the text, and the run of each family that nobody touched.
    """

    seed: int
    fault: str
    family: str
    moment: str
    place: Path
    shared: Path

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.disk = self.place / "disk"
        self.workdir, self.exported = self.disk / "run", self.disk / "exported"
        self.clock: Path | None = None
        self.whole = self.moment == "start" and self.draw.random() < 0.3
        self.damaged = Path()
        self.starts: list[Start] = []

    @property
    def exports(self) -> bool:
        return self.moment == "export"

    @property
    def reference(self) -> Path:
        return self.shared / self.family

    @property
    def words(self) -> list[str]:
        if self.exports:
            return ["export", str(self.workdir), str(self.exported), "--format", "jax"]
        return [*command(self.family, self.shared / "text.txt"), "--workdir", str(self.workdir)]

    def start(self) -> Start:
        """Starts the command."""
        output = self.place / f"start{len(self.starts)}.txt"
        whole, self.whole = self.whole, False
        draws = self.moment == "report"
        together = 1 if self.exports else processes(self.family)
        start = Start(self.words, output, whole=whole, clock=self.clock, draws=draws, processes=together)
        start.struck = self.draw.choice([start, *start.others]) if start.others else start
        self.starts.append(start)
        return start

    def reaches_moment(self, start: Start) -> bool:
        """Waits for the round's moment. False: the start has ended before."""
        draw, workdir, moment = self.draw, self.workdir, self.moment
        if moment in ("start", "export"):
            return not start.wait(draw.uniform(0, 6 if start.whole else 2))
        goal = draw.randrange(1, TOTAL_STEPS)
        if moment == "save":
            return start.wait_until(lambda: is_saving(workdir) and last_row(workdir)[0] >= goal, SECONDS)
        if moment == "evaluation":
            goal = draw.choice([EVALUATE_EVERY, TOTAL_STEPS])
        conditions = {
            "saved": lambda: bool(saved_steps(workdir)) and last_row(workdir)[0] >= max(goal, SAVE_EVERY),
            "report": lambda: last_row(workdir) == (TOTAL_STEPS, "validation"),
        }
        reached = start.wait_until(conditions.get(moment, lambda: last_row(workdir)[0] >= goal), SECONDS)
        delay = {"step": 0.01, "evaluation": 0.05, "report": 0.5}.get(moment, 0.0)
        return reached and not start.wait(draw.uniform(0, delay))


def last_row(workdir: Path) -> tuple[int, str]:
    """Step and split of the last row of metrics.jsonl; step 0 = there is none."""
    try:
        row = json.loads((workdir / "metrics.jsonl").read_bytes().rpartition(b"\n")[0].rpartition(b"\n")[2])
    except (OSError, ValueError):
        return 0, ""
    return row["step"], row["split"]


def saved_steps(workdir: Path) -> list[int]:
    """Steps of finished checkpoints; unfinished ones have longer names."""
    with contextlib.suppress(OSError):
        return sorted(int(path.name) for path in (workdir / "checkpoints").iterdir() if path.name.isdigit())
    return []


def is_saving(workdir: Path) -> bool:
    """Whether a checkpoint is being written."""
    with contextlib.suppress(OSError):
        return any(not path.name.isdigit() for path in (workdir / "checkpoints").iterdir())
    return False


def ending(start: Start, seconds: float = SECONDS) -> str:
    """How a start ends: done, stopped (and saved), refused in one line, or killed. Of several processes all end so, but
    the others of one that was killed are refused. Raises: FailedError otherwise.
    """
    if not start.wait(seconds):
        start.kill()
        raise FailedError(f"hangs: {start.output[-300:]} {start.errors[-1500:]}")
    kinds = {_ending(process, several=bool(start.others)) for process in (start, *start.others)}
    if len(kinds) > 1 and kinds != {"killed", "refused"}:
        raise FailedError(f"several processes: {kinds}")
    return "killed" if "killed" in kinds else kinds.pop()


def _ending(start: Start, *, several: bool) -> str:
    """How one process ends. Where several train, JAX may abort one after our line, with lines of its own."""
    lines = [line for line in start.errors.splitlines() if line and not line.startswith(QUIET)]
    lines = [line for line in lines if not XLA.match(line)]
    status = start.status or 0
    kind = "killed" if status < 0 else ENDINGS.get(status, "")
    if several and kind == "killed" and any(map(NAMED.match, lines)):
        return "refused"
    clear = {
        "done": not lines,
        "refused": len(lines) == 1 and lines[0].startswith("error: "),
        "stopped": not lines or (len(lines) == 1 and lines[0].startswith("interrupted; ")),
        "killed": "Traceback" not in start.errors,  # XLA aborts with stacks of its own where it gets no memory
    }
    if not clear.get(kind):
        raise FailedError(f"status {status}: {start.errors[-3000:]}")
    return kind


def same(round_: Round, folder: Path, reference: Path) -> str:
    """How a finished run, or an export, differs from the one that nobody touched; "" = in no bit."""
    answer = round_.place / "differs"
    process = os.fork()  # the comparison needs a device
    if process == 0:
        try:
            compare = exports_differ if round_.exports else difference
            answer.write_text(compare(folder, reference))
        except BaseException as error:
            answer.write_text(f"{type(error).__name__}: {error}")
        finally:
            os._exit(0)
    os.waitpid(process, 0)
    return answer.read_text()


def exports_differ(folder: Path, reference: Path) -> str:
    """Compares the files of two exports byte for byte, and programs without the lines of code that they come from."""
    names = sorted({path.name for each in (folder, reference) for path in each.iterdir()})
    return next((f"{x} differs" for x in names if content(folder / x) != content(reference / x)), "")


def content(file: Path) -> Any:
    """Of an exported file; None = it does not exist."""
    if not file.is_file():
        return None
    if file.suffix != ".jax":
        return file.read_bytes()
    from jax import export

    program = export.deserialize(bytearray(file.read_bytes()))
    lines = (
        re.sub(r"loc\((#loc\d*|\"[^\"]*\"(\(#loc\d*\))?)\)", "", line) for line in program.mlir_module().splitlines()
    )
    return [line for line in lines if not line.startswith("#loc")]


def difference(workdir: Path, reference: Path) -> str:
    """Compares the last checkpoints bit for bit, and the rows of metrics.jsonl without their times."""
    from jaxnlp.saving.checkpoint_reading import checkpoint_steps, read_record
    from tests.run_folders import rows, saved_arrays

    found, expected = saved_arrays(workdir), saved_arrays(reference)
    if found.keys() != expected.keys():
        return "other arrays"
    for name, x in expected.items():
        if (found[name].dtype, found[name].shape, found[name].tobytes()) != (x.dtype, x.shape, x.tobytes()):
            return f"{name} differs"
    records = [read_record(run, checkpoint_steps(run)[-1]) for run in (workdir, reference)]
    names = ("step", "data_state", "metrics", "losses", "scores", "fingerprint")
    changed = [f"{name} differs" for name in names if getattr(records[0], name) != getattr(records[1], name)]
    return "; ".join([*changed, *(["metrics.jsonl differs"] if rows(workdir) != rows(reference) else [])])


def temporary(workdir: Path) -> list[str]:
    """Names of what a start should have removed: unfinished checkpoints, and files that are not in place yet."""
    folders = [folder for folder in (workdir.parent, workdir) if folder.is_dir()]
    names = [path.name for folder in folders for path in folder.iterdir() if path.name.startswith(".")]
    return names + ["an unfinished checkpoint"] * is_saving(workdir)


def make_references(shared: Path, families: Sequence[str] = FAMILIES) -> None:
    """Trains each family, and exports it, without any fault. What exists is kept."""
    write_text(shared / "text.txt")
    for family in families:
        folder, exported = shared / family, shared / f"{family}.exported"
        train = [*command(family, shared / "text.txt"), "--workdir", str(folder)]
        for words in (train, ["export", str(folder), str(exported), "--format", "jax"]):
            if exported.exists():
                continue
            together = processes(family) if words == train else 1
            start = Start(words, shared / f"{family}.txt", processes=together)
            if ending(start, 600) != "done":
                raise FailedError(f"{family}: {start.errors}")


def play(round_: Round, fault: Any) -> tuple[str, str]:
    """Plays a round with a `Fault`. Returns: the outcome and, of one that failed, the reason."""
    shutil.rmtree(round_.place, ignore_errors=True)
    round_.disk.mkdir(parents=True)
    try:
        with fault.place(round_):
            if round_.exports:
                shutil.copytree(round_.reference, round_.workdir)
            return _played(round_, fault), ""
    except FailedError as error:
        return FAILED, str(error)
    finally:
        for start in round_.starts:
            start.kill()


def _played(round_: Round, fault: Any) -> str:
    if fault.at_rest and round_.exports:
        fault.strike(round_, None)
    start = round_.start()
    if not (fault.at_rest and round_.exports):
        if not round_.reaches_moment(start):
            return MISSED
        fault.strike(round_, start)
    first = ending(start)
    if first not in fault.first:
        raise FailedError(f"the first start {first}: {start.output[-500:]} {start.errors[-1500:]}")
    fault.mend(round_)
    finished, outcome = round_.exports and first == "done", SAME
    if not finished and _again(round_) == "refused":
        if not fault.at_rest:
            raise FailedError(f"the repetition is refused: {round_.starts[-1].errors[-1500:]}")
        outcome = REFUSED
    elif _differs(round_) and fault.at_rest and "warning: " in round_.starts[-1].errors + round_.starts[-1].output:
        outcome = WARNED
    if outcome != SAME:
        fault.restore(round_)
        if _again(round_) == "refused":
            raise FailedError(f"the restored folder is refused: {round_.starts[-1].errors[-1500:]}")
    different = _differs(round_)
    if different:
        raise FailedError(different)
    left = temporary(round_.workdir)
    if left and first != "killed":
        raise FailedError(f"left behind: {', '.join(left)}")
    return outcome


def _again(round_: Round) -> str:
    """How the same command ends now: done or refused."""
    again = ending(round_.start())
    if again not in ("done", "refused"):
        raise FailedError(f"the repetition {again}: {round_.starts[-1].errors[-1500:]}")
    return again


def _differs(round_: Round) -> str:
    if round_.exports:
        return same(round_, round_.exported, round_.shared / f"{round_.family}.exported")
    return same(round_, round_.workdir, round_.reference)


def timed(round_: Round, fault: Any) -> dict[str, Any]:
    """A round as a row of the results."""
    begun = time.monotonic()
    outcome, reason = play(round_, fault)
    row = {name: getattr(round_, name) for name in ("seed", "fault", "family", "moment")} | {"outcome": outcome}
    return row | {"seconds": round(time.monotonic() - begun, 1)} | ({"reason": reason} if reason else {})
