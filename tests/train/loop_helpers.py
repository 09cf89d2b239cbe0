"""What tests of runs share."""

import json

import jax

from train.parallel import make_parallel
from train.run.checkpoint_writing import Checkpoints
from train.run.init_from import begin
from train.run.setup import set_up

TIMES = ("train_seconds", "characters_per_second", "words_per_second")


def rows(workdir):
    """Lines of metrics.jsonl without the times."""
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    return [{name: x for name, x in json.loads(line).items() if name not in TIMES} for line in lines]


def arrays(state):
    """Of a state, as NumPy: comparable bit by bit."""
    return jax.device_get(state.replace(key=jax.random.key_data(state.key)))


def prepared(config):
    """What a config decides, and the state before the first step."""
    setup = set_up(begin(config))
    return setup, jax.jit(setup.initial_state)(setup.given)


def restored(config, workdir):
    """The newest checkpoint of a run."""
    like = make_parallel("jit").like(set_up(begin(config)).abstract_state)
    with Checkpoints(workdir, keep=9) as checkpoints:
        return checkpoints.restore_latest(like)
