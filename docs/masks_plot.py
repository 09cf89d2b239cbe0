"""Draws attention masks: python -m docs.masks_plot --out FOLDER writes FOLDER/masks.png."""

import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import tyro

from jaxnlp.cli.messages import exit_status
from jaxnlp.ops import masks

T = 8
SEGMENTS = jnp.array([[1, 1, 1, 2, 2, 2, 2, 0]])

MASKS = {
    "padding([6], 8)": masks.padding(jnp.array([6]), T),
    "causal(8, 8)": masks.causal(T, T),
    "causal & padding": masks.causal(T, T) & masks.padding(jnp.array([6]), T),
    "local(8, 8, before=1, after=1)": masks.local(T, T, before=1, after=1),
    "causal & local(8, 8, before=2)": masks.causal(T, T) & masks.local(T, T, before=2),
    "causal & segments": masks.causal(T, T) & masks.segments(SEGMENTS),
}
"""The mask of each panel, [1, 1, 1 or T, T]."""


def draw(out: Path) -> Path:
    """Draws all masks into one picture. Returns: its path."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 6.2), layout="constrained")
    for axes, (name, mask) in zip(figure.subplots(2, 3, sharex=True, sharey=True).flat, MASKS.items(), strict=True):
        sees = np.broadcast_to(np.asarray(mask)[0, 0], (T, T))
        axes.imshow(sees, cmap="Blues", vmin=0.0, vmax=1.4)
        axes.set_title(name, fontsize=10)
        axes.set_xticks(range(T))
        axes.set_yticks(range(T))
        axes.set_xticks(np.arange(T - 1) + 0.5, minor=True)
        axes.set_yticks(np.arange(T - 1) + 0.5, minor=True)
        axes.grid(which="minor", color="white", linewidth=1.5)
        axes.tick_params(which="both", length=0)
    figure.supxlabel("position of the key")
    figure.supylabel("position of the query")
    out.mkdir(parents=True, exist_ok=True)
    path = out / "masks.png"
    figure.savefig(path, dpi=110, metadata={"Software": None})
    return path


def main(out: Path = Path("docs/images")) -> None:
    """Writes masks.png.

    Args:
      out: its folder.
    """
    print(draw(out.expanduser()))


if __name__ == "__main__":
    sys.exit(exit_status(lambda: tyro.cli(main)))
