"""What tests of a run's log and of the console share."""

import io

import jax.numpy as jnp
from rich.console import Console

from jaxnlp.pages.content import MarkedText
from jaxnlp.tasks import Section
from train.logs.log import RunLog


def console(**options):
    return Console(file=io.StringIO(), width=200, **options)


def step_metrics(loss, count):
    return {"loss": (jnp.float32(loss * count), jnp.float32(count)), "grad_norm": (jnp.float32(2.0), jnp.float32(1))}


def log_train(log, step, learning_rate=0.5, skipped=0):
    log.log_train(step, learning_rate=jnp.float32(learning_rate), skipped_updates=jnp.int32(skipped))


def sample(text):
    return Section("samples", MarkedText(((("a", True), (text, False)),)), "all")


def write_steps(folder, steps, text="ab"):
    with RunLog(folder, console(), total_steps=100, first_step=steps[0] - 1) as log:
        for step in steps:
            log.log_evaluation(step, "validation", {"loss": float(step)})
            log.log_sections(step, [sample(f"{text}{step}")])
