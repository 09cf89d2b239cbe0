"""How large the gradient of each layer of a Transformer is at the start, with the norm before or after each branch.

    python -m docs.translation_experiments

prints a table; docs/translation.md explains it. The batch is numbers in words, the model is that of the recipe
number_words with other norms and depths, without dropout. The gradient is that of the mean loss per token. The blocks'
matrices begin with this library's standard deviation of 0.02, or with that of Glorot and Bengio, as published.

Source: Xiong et al. 2020, "On layer normalization in the Transformer architecture", figure 3; Glorot and Bengio 2010.
"""

import dataclasses
import itertools
import sys
from collections.abc import Mapping
from typing import Any, Literal

import jax
import numpy as np
import tyro

from configs.number_words import get_config
from jaxnlp.cli.messages import exit_status
from jaxnlp.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from jaxnlp.nn.dense import INITIAL_STDDEV
from jaxnlp.typing import Params

Norm = Literal["pre", "post"]
DEPTHS = (2, 6)
SEEDS = 5


def glorot(blocks: Params) -> Params:
    """Blocks whose matrices [L, D, ...] have the standard deviation sqrt(2 / (inputs + outputs)) in place of 0.02."""

    def scaled(path: Any, leaf: jax.Array) -> jax.Array:
        if path[-1].key != "kernel":
            return leaf
        name, inputs = path[-2].key, leaf.shape[1]
        parts = {"qkv": 3, "kv": 2}.get(name, 1)  # matrices side by side
        outputs = leaf[0].size // inputs // parts
        return leaf * ((2 / (inputs + outputs)) ** 0.5 / INITIAL_STDDEV)

    return jax.tree_util.tree_map_with_path(scaled, blocks)


def layer_norms(
    norm: Norm, depth: int, batch: Mapping[str, Any], vocabulary_size: int, *, published: bool
) -> dict[str, np.ndarray]:
    """The gradient's norm in each block, [L], of the encoder and of the decoder; the mean over some initial models."""
    recipe = get_config()
    config: Any = recipe.model
    assert isinstance(config, EncoderDecoderConfig)
    config = dataclasses.replace(config, norm=norm, num_layers=depth)
    model = EncoderDecoder(config, vocabulary_size, vocabulary_size)
    objective = recipe.task.objective(model, None)

    @jax.jit
    def norms(key: jax.Array) -> dict[str, jax.Array]:
        params = model.init(key, batch["source"], batch["inputs"])["params"]
        if published:
            params |= {
                side: params[side] | {"blocks": glorot(params[side]["blocks"])} for side in ("encoder", "decoder")
            }
        gradient = jax.grad(lambda params: objective.loss(params, batch, None, ())[0])(params)
        found = {}
        for side in ("encoder", "decoder"):
            squares = [(leaf**2).reshape(depth, -1).sum(axis=1) for leaf in jax.tree.leaves(gradient[side]["blocks"])]
            found[side] = sum(squares) ** 0.5
        return found

    found = [norms(jax.random.key(seed)) for seed in range(SEEDS)]
    return {side: np.mean([np.asarray(one[side]) for one in found], axis=0) for side in found[0]}


def table() -> str:
    """A row for each norm and depth: the first and the last block of both sides, and their ratio in the decoder."""
    corpus = get_config().data.load(0)
    batch: Any = next(iter(corpus.train))
    lines = [
        "| matrices | norm | blocks | encoder, first | encoder, last | decoder, first | decoder, last | last / first |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    norms: tuple[Norm, Norm] = ("post", "pre")
    for published, norm, depth in itertools.product((True, False), norms, DEPTHS):
        found = layer_norms(norm, depth, batch, corpus.processor.target.size, published=published)
        ends = [found[side][place] for side in ("encoder", "decoder") for place in (0, -1)]
        cells = " | ".join(f"{value:.3f}" for value in ends)
        start = "Glorot" if published else "0.02"
        lines.append(f"| {start} | {norm} | {depth} | {cells} | {ends[3] / ends[2]:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    print(table())


if __name__ == "__main__":
    sys.exit(exit_status(lambda: tyro.cli(main)))
