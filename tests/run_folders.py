"""What a run's folder holds, to compare runs that must not differ."""

import json

import jax
import numpy as np
import orbax.checkpoint as ocp

from jaxnlp.saving.checkpoint_reading import checkpoint_steps, read_record

EVERY_SIGN = "-a\\b c%20#?*[x]{y}\"'é海:$&~,;"
"""A folder's name with the signs that shells, globs, URLs and other systems read."""


def rows(workdir):
    """Complete lines of metrics.jsonl so far, without the times."""
    path = workdir / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    parsed = [json.loads(line) for line in lines if line.endswith(b"\n")]
    return [{name: x for name, x in row.items() if not name.endswith(("_seconds", "_per_second"))} for row in parsed]


def saved_arrays(workdir):
    """Every array of the last checkpoint, by its item and its path in it."""
    step = checkpoint_steps(workdir)[-1]
    names = read_record(workdir, step).items
    items = ocp.args.Composite(**{name: ocp.args.StandardRestore() for name in names})
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as checkpointer:
        restored = checkpointer.restore(workdir.absolute() / "checkpoints" / str(step), args=items)
    leaves = jax.tree_util.tree_leaves_with_path(dict(restored.items()))
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def assert_same_run(workdir, straight):
    """The last checkpoints have equal bits in every array and continue with the same batch; all metrics are equal."""
    found, expected = saved_arrays(workdir), saved_arrays(straight)
    assert found.keys() == expected.keys()
    assert {name.partition("]")[0] for name in expected} >= {"['params'", "['training'"}
    assert any(name.startswith("['training']['opt_state']") for name in expected)
    for name, x in expected.items():
        np.testing.assert_array_equal(found[name], x, err_msg=name)
    assert rows(workdir) == rows(straight) != []
    records = [read_record(run, checkpoint_steps(run)[-1]) for run in (workdir, straight)]
    for name in ("step", "data_state", "metrics", "losses", "fingerprint"):
        assert getattr(records[0], name) == getattr(records[1], name), name
    assert not (workdir / "damaged_checkpoints").exists()
