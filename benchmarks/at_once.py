"""A step of three runs that one program trains at once, next to three steps of runs one by one.

A step waits for its results: for an opponent the worker does not.
"""

import functools
from typing import Any

from benchmarks.case import OURS, Case, Step

RUNS = 3
RECIPES = ("small_grammar_tagger", "vit_digits", "additions")
"""Of small models, whose data are made here."""
ONE_BY_ONE = "one_by_one"


def cases() -> list[Case]:
    return [
        Case(
            "at_once",
            {OURS: functools.partial(at_once, recipe), ONE_BY_ONE: functools.partial(one_by_one, recipe)},
            recipe,
        )
        for recipe in RECIPES
    ]


def prepared(recipe: str, *, mapped: bool = False) -> tuple[list[Any], list[Any], list[Any]]:
    """The objects of a run of each seed, its initial state, and a batch. Args: mapped: for `jax.vmap`."""
    import jax

    from jaxnlp.inference.caches import use_compilation_cache
    from train.config import update
    from train.recipes import load_recipe
    from train.run.init_from import begin
    from train.run.setup import set_up

    use_compilation_cache(None)
    config = update(load_recipe(recipe), **{"data.few_lengths": True})
    if mapped:
        config = update(config, **{"model.compute": config.model.compute.without_unmapped_kernels})
    setups = [set_up(begin(update(config, seed=seed))) for seed in range(RUNS)]
    states = [jax.jit(setup.initial_state)(setup.given) for setup in setups]
    return setups, states, [dict(next(iter(setup.corpus.train))) for setup in setups]


def at_once(recipe: str) -> Step:
    import jax

    from jaxnlp.ops.compiler_options import jit_for
    from train.at_once import stacked, step_of_all

    setups, given, batches = prepared(recipe, mapped=True)
    program, states = jit_for(jax.devices()[0], step_of_all(setups), donate_argnums=0), stacked(given)

    def step() -> object:
        nonlocal states
        states, outputs = program(states, batches)
        return jax.block_until_ready(outputs)

    return step


def one_by_one(recipe: str) -> Step:
    import jax

    from jaxnlp.ops.compiler_options import jit_for

    setups, states, batches = prepared(recipe)
    program = jit_for(jax.devices()[0], setups[0].step, donate_argnums=0)

    def step() -> object:
        outputs = []
        for index, batch in enumerate(batches):
            states[index], output = program(states[index], batch)
            outputs.append(output)
        return jax.block_until_ready(outputs)

    return step
