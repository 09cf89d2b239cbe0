"""Four small experiments on what attention can do: copy a value, average two, and why that takes two heads.

    python docs/attention_experiments.py --out FOLDER

prints the numbers and draws them into FOLDER/attention_experiments.png; docs/attention.md explains them.

All scores are plain products q . k (scale 1): a factor 1 / sqrt(K) would only ask for longer queries. The values are
unit vectors, one axis each, so that the mixed value can be read as the weights themselves.

Source: the "attention exploration" that Stanford's CS224N sets as an assignment, in numbers instead of proofs.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
import numpy as np
import tyro

from jaxnlp.cli.messages import exit_status
from jaxnlp.ops.attention import dot_product_attention

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SEED = 0
COPY_FACTORS = (0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0)
COPY_KEYS = (4, 16, 64)
AVERAGE_FACTORS = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.0)
SPREAD_FACTORS = (2.5, 5.0, 10.0, 20.0, 40.0)
DRAWN_FACTOR = 20.0
KEYS = 16
SAMPLES = 1000
ALPHA = 1e-6
"""Variance of a key around its mean, in every direction."""
A, B = 0, 1
"""The two keys, and their values, that the experiments are about; all others are in the way."""

BLUE, ORANGE, GREEN, GREY = "#1f7fc0", "#d9651b", "#0f9d76", "#6c7683"


class Copying(NamedTuple):
    """How far attention's output is from the value that the query asks for; the query is factor * k_a.

    Attributes:
      factors: [F], the norm of the query.
      errors: number of keys S -> distances |y - v_a| [F].
    """

    factors: np.ndarray
    errors: dict[int, np.ndarray]


class Averaging(NamedTuple):
    """Where the weight goes when the query is factor * (k_a + k_b).

    Attributes:
      factors: [F].
      weight_a: [F].
      weight_b: [F].
      others: [F], the weight of all other keys together.
      errors: [F], distances |y - (v_a + v_b) / 2|.
    """

    factors: np.ndarray
    weight_a: np.ndarray
    weight_b: np.ndarray
    others: np.ndarray
    errors: np.ndarray


class Samples(NamedTuple):
    """Mixed values of many draws of the keys, as places on the line from v_b (0) to v_a (1).

    Attributes:
      lengths: k_a . mu_a of each draw [N], negative where key a points backwards.
      heads: place of each head's output [N, H].
      places: place of the average of the heads [N].
    """

    lengths: np.ndarray
    heads: np.ndarray
    places: np.ndarray


def mix(queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """What attention returns for one position and several heads that share keys and values.

    Args:
      queries: [N, H, K].
      keys: [N, S, K].
      values: [S, K].

    Returns:
      Mixed values [N, H, K], float64.
    """
    q = jnp.asarray(queries[:, None], jnp.float32)
    k = jnp.asarray(keys[:, :, None], jnp.float32)
    v = jnp.broadcast_to(jnp.asarray(values[None, :, None], jnp.float32), k.shape)
    return np.asarray(dot_product_attention(q, k, v, scale=1.0)[:, 0], np.float64)


def orthonormal(rng: np.random.Generator, count: int, width: int) -> np.ndarray:
    """So many random unit vectors [count, width], each orthogonal to all others."""
    return np.linalg.qr(rng.standard_normal((width, count)))[0].T


def place(y: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Where vectors [..., K] lie along v_a - v_b: 0 at v_b, 1/2 half way, 1 at v_a."""
    line = values[A] - values[B]
    return (y - values[B]) @ line / (line @ line)


def copying(rng: np.random.Generator, factors: Sequence[float], numbers_of_keys: Sequence[int]) -> Copying:
    """Experiment a: a query along one of S orthonormal keys gets that key's value, the better the longer it is."""
    width = max(numbers_of_keys)
    c = np.asarray(factors)
    errors = {}
    for count in numbers_of_keys:
        keys, values = orthonormal(rng, count, width), np.eye(count, width)
        queries = c[:, None, None] * keys[A]
        y = mix(queries, np.broadcast_to(keys, (len(c), *keys.shape)), values)[:, 0]
        errors[count] = np.linalg.norm(y - values[A], axis=-1)
    return Copying(c, errors)


def copying_error(factors: np.ndarray, count: int) -> np.ndarray:
    """What experiment a measures, from a formula.

    Key a's score is c, all others are 0, so the weight 1 - w = (S - 1) / (e^c + S - 1) goes astray, in equal parts, and
    |y - v_a| = (1 - w) sqrt(S / (S - 1)).
    """
    return (count - 1) / (np.exp(factors) + count - 1) * np.sqrt(count / (count - 1))


def averaging(rng: np.random.Generator, factors: Sequence[float]) -> Averaging:
    """Experiment b: a query between two orthonormal keys gets the average of their values."""
    c = np.asarray(factors)
    keys, values = orthonormal(rng, KEYS, KEYS), np.eye(KEYS)
    queries = c[:, None, None] * (keys[A] + keys[B])
    y = mix(queries, np.broadcast_to(keys, (len(c), *keys.shape)), values)[:, 0]
    errors = np.linalg.norm(y - (values[A] + values[B]) / 2, axis=-1)
    return Averaging(c, y[:, A], y[:, B], np.delete(y, [A, B], axis=-1).sum(axis=-1), errors)


def draw_keys(rng: np.random.Generator, means: np.ndarray, *, varying: bool) -> np.ndarray:
    """Draws of all keys [N, S, K], key s from N(mu_s, alpha I).

    Args:
      rng: source of the draws.
      means: mu [S, K], orthonormal.
      varying: key a's covariance is alpha I + 1/2 mu_a mu_a^T: its direction stays, its length varies.
    """
    keys = means + np.sqrt(ALPHA) * rng.standard_normal((SAMPLES, *means.shape))
    if varying:
        keys[:, A] += np.sqrt(0.5) * rng.standard_normal((SAMPLES, 1)) * means[A]
    return keys


def attend_to_both(keys: np.ndarray, means: np.ndarray, queries: np.ndarray) -> Samples:
    """What heads with these queries [H, K] return for each draw of the keys, and the average of the heads.

    Experiments c and d: one head with the query of experiment b; two heads, one query along each mean.
    """
    values = np.eye(len(means))
    heads = mix(np.broadcast_to(queries, (len(keys), *queries.shape)), keys, values)
    return Samples(keys[:, A] @ means[A], place(heads, values), place(heads.mean(axis=1), values))


def one_sided(places: np.ndarray) -> float:
    """The share of positions whose output is nearly one of the two values, or beyond it, and not an average."""
    return float(((places < 0.1) | (places > 0.9)).mean())


def one_head(means: np.ndarray, factor: float) -> np.ndarray:
    """The query [1, K] between both keys' means."""
    return factor * (means[A] + means[B])[None]


def two_heads(means: np.ndarray, factor: float) -> np.ndarray:
    """Queries [2, K], the first along mu_a, the second along mu_b."""
    return factor * means[[A, B]]


def table(title: str, columns: dict[str, Sequence[float]], formats: Sequence[str]) -> str:
    """Numbers in columns under their names, aligned, as text."""
    cells = [
        [name, *(format(number, form) for number in column)]
        for (name, column), form in zip(columns.items(), formats, strict=True)
    ]
    widths = [max(map(len, column)) for column in cells]
    rows = zip(*cells, strict=True)
    return "\n".join([title, *("  ".join(map(str.rjust, row, widths)) for row in rows)])


def copying_table(result: Copying) -> str:
    """Experiment a in numbers."""
    columns = {"c": result.factors, **{f"S = {count}": errors for count, errors in result.errors.items()}}
    return table("(a) copying v_a: the distance |y - v_a|, q = c k_a", columns, ["g"] + [".1e"] * len(result.errors))


def averaging_table(result: Averaging) -> str:
    """Experiment b in numbers."""
    columns = {
        "c": result.factors,
        "weight of a": result.weight_a,
        "weight of b": result.weight_b,
        "all others": result.others,
        "|y - average|": result.errors,
    }
    return table(f"(b) averaging v_a and v_b: q = c (k_a + k_b), S = {KEYS}", columns, ["g"] + [".4f"] * 4)


def places_columns(steady: Sequence[Samples], varying: Sequence[Samples]) -> dict[str, Sequence[float]]:
    """What experiments c and d both tell, a row for each factor."""
    return {
        "c": SPREAD_FACTORS,
        "std, same length": [samples.places.std() for samples in steady],
        "std, varying": [samples.places.std() for samples in varying],
        "mean, varying": [samples.places.mean() for samples in varying],
        "within 0.1 of an end": [one_sided(samples.places) for samples in varying],
    }


PLACES_FORMATS = ["g", ".4f", ".3f", ".3f", ".3f"]


def one_head_table(steady: Sequence[Samples], varying: Sequence[Samples]) -> str:
    """Experiment c in numbers."""
    columns = places_columns(steady, varying)
    return table("(c) one head: place between v_b (0) and v_a (1)", columns, PLACES_FORMATS)


def two_heads_table(steady: Sequence[Samples], varying: Sequence[Samples], one: Sequence[Samples]) -> str:
    """Experiment d in numbers, and how many times one head's standard deviation is that of two."""
    columns = places_columns(steady, varying)
    columns["std of one / two"] = [a.places.std() / b.places.std() for a, b in zip(one, varying, strict=True)]
    return table("(d) two heads, averaged: the same", columns, [*PLACES_FORMATS, ".1f"])


def draw(copied: Copying, averaged: Averaging, one: Samples, two: Samples, path: Path) -> None:
    """Writes the figure, one panel an experiment."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # the same picture whatever the user's matplotlibrc says
        matplotlib.rcParams.update({"font.size": 11, "axes.titlesize": 13, "axes.titleweight": "bold"})
        matplotlib.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left"})
        figure = Figure(figsize=(12.5, 9), dpi=120, layout="constrained")
        figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12)
        panels = figure.subplot_mosaic(
            [["a", "a", "b", "b"], ["c", "c counts", "d", "d counts"]], width_ratios=[6, 1, 6, 1]
        )
        draw_copying(panels["a"], copied)
        draw_averaging(panels["b"], averaged)
        draw_one_head(panels["c"], one)
        draw_counts(panels["c counts"], one.places, BLUE)
        draw_two_heads(panels["d"], two)
        draw_counts(panels["d counts"], two.places, GREEN)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)


def draw_copying(axes: "Axes", result: Copying) -> None:
    """Experiment a: measured errors on the lines that the formula gives."""
    dense = np.linspace(result.factors.min(), result.factors.max(), 200)
    for (count, errors), colour in zip(result.errors.items(), (BLUE, ORANGE, GREEN), strict=True):
        axes.plot(dense, copying_error(dense, count), color=colour, lw=1.5)
        axes.plot(result.factors, errors, "o", color=colour, ms=6, label=f"S = {count} keys")
    axes.set_yscale("log")
    axes.set_title("a   Copying one value")
    axes.set_xlabel("c, the query is c k$_a$")
    axes.set_ylabel("distance |y \u2212 v$_a$|, values of length 1")
    axes.legend(frameon=False, title="points: measured; lines: formula", alignment="left", loc="lower left")
    axes.grid(axis="y", color=GREY, alpha=0.2)


def draw_averaging(axes: "Axes", result: Averaging) -> None:
    """Experiment b: the weights of both keys, which coincide, and of all others."""
    axes.axhline(0.5, color=GREY, lw=1, ls=(0, (4, 3)))
    axes.plot(result.factors, result.others, "^-", color=GREY, ms=6, label=f"the other {KEYS - 2} keys together")
    axes.plot(result.factors, result.weight_a, "o-", color=BLUE, ms=9, lw=3, label="key a")
    axes.plot(result.factors, result.weight_b, "o-", color=ORANGE, ms=4, lw=1, label="key b (on top of key a)")
    axes.set_ylim(0, 1)
    axes.set_title("b   Averaging two values")
    axes.set_xlabel("c, the query is c (k$_a$ + k$_b$)")
    axes.set_ylabel("weight (all add up to 1)")
    axes.legend(frameon=False)


def draw_one_head(axes: "Axes", samples: Samples) -> None:
    """Experiment c: one dot a draw of the keys."""
    _places(axes, samples.lengths, samples.places, BLUE)
    text = f"q = c (\u03bc$_a$ + \u03bc$_b$), c = {DRAWN_FACTOR:g}\n{len(samples.places):,} draws of the keys\n"
    axes.text(1.3, 0.5, f"{text}standard deviation {samples.places.std():.2f}", color=BLUE, va="center")
    axes.set_title("c   One head swings between the two values")


def draw_two_heads(axes: "Axes", samples: Samples) -> None:
    """Experiment d: three dots a draw of the same keys, one for each head and one for their average."""
    _places(axes, samples.lengths, samples.heads[:, 0], GREY)
    _places(axes, samples.lengths, samples.heads[:, 1], ORANGE)
    _places(axes, samples.lengths, samples.places, GREEN)
    axes.text(1.3, 0.96, f"head 1: q = c \u03bc$_a$, c = {DRAWN_FACTOR:g}", color=GREY, va="top")
    axes.text(1.3, 0.04, f"head 2: q = c \u03bc$_b$, c = {DRAWN_FACTOR:g}", color=ORANGE, va="bottom")
    axes.text(1.3, 0.46, f"their average:\nstandard deviation {samples.places.std():.2f}", color=GREEN, va="top")
    axes.text(-1.15, 0.19, "key a short or backwards:\nhead 1 misses it", color=GREEN, va="top")
    axes.set_title("d   Two heads, averaged, stay near the middle")


def draw_counts(axes: "Axes", places: np.ndarray, colour: str) -> None:
    """How many draws end where, beside the panel with the dots."""
    axes.hist(places, bins=np.linspace(-0.025, 1.025, 22), orientation="horizontal", color=colour)
    axes.set_ylim(-0.06, 1.06)
    axes.set_xlim(0, len(places))
    axes.tick_params(labelleft=False, left=False)
    axes.set_xlabel("draws")


def _places(axes: "Axes", lengths: np.ndarray, places: np.ndarray, colour: str) -> None:
    axes.plot(lengths, places, "o", color=colour, ms=4, mew=0, alpha=0.4)
    axes.set_ylim(-0.06, 1.06)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["v$_b$  0", "0.25", "0.5", "0.75", "v$_a$  1"])
    axes.set_xlabel("length of key a along its mean, k$_a$ \u00b7 \u03bc$_a$")
    axes.set_ylabel("place of the output between v$_b$ and v$_a$")


def main(out: Path = Path("runs/attention")) -> None:
    """Prints the numbers of the four experiments and draws them.

    Args:
      out: folder of the figure, made when missing.
    """
    rng = np.random.default_rng(SEED)
    copied = copying(rng, COPY_FACTORS, COPY_KEYS)
    averaged = averaging(rng, AVERAGE_FACTORS)
    means = orthonormal(rng, KEYS, KEYS)
    steady, varying = (draw_keys(rng, means, varying=varying) for varying in (False, True))
    one_steady, one_varying, two_steady, two_varying = (
        [attend_to_both(keys, means, queries(means, factor)) for factor in SPREAD_FACTORS]
        for queries in (one_head, two_heads)
        for keys in (steady, varying)
    )
    tables = (
        copying_table(copied),
        averaging_table(averaged),
        one_head_table(one_steady, one_varying),
        two_heads_table(two_steady, two_varying, one_varying),
    )
    print("\n\n".join(tables))
    drawn = SPREAD_FACTORS.index(DRAWN_FACTOR)
    path = out.expanduser() / "attention_experiments.png"
    draw(copied, averaged, one_varying[drawn], two_varying[drawn], path)
    print(f"\n{path}")


if __name__ == "__main__":
    sys.exit(exit_status(lambda: tyro.cli(main, description=__doc__)))
