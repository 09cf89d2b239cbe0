"""`python -m benchmarks.gpu_checks [CHECK ...]`: kernels and hand-written gradients against plain code, on a GPU.

A line has the largest difference, as a share of the largest expected value, the most that is allowed, and the time of a
call with its gradients. The exit status is 1 if a check fails. On a CPU the arrays are small, kernels are interpreted,
nothing is timed, and checks that need a GPU are skipped.
"""

import argparse
import contextlib
import functools
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxnlp.ops.attention import dot_product_attention, packed_attention, unpacked
from jaxnlp.ops.devices import compile_for
from jaxnlp.ops.dropout_masks import keep_mask
from jaxnlp.ops.embeddings import embed
from jaxnlp.ops.flash import flash_attention
from jaxnlp.ops.losses import linear_cross_entropy
from jaxnlp.ops.recurrent_layers import LSTM, recurrent

CALLS = 10
ROUNDED = 0.02
"""The largest difference of bfloat16 and TF32 from float32."""


class Comparison(NamedTuple):
    """What is checked: a function without arguments, and the arrays that it should return."""

    run: Callable[[], Any]
    expected: Any


class Check(NamedTuple):
    """A comparison, made for a GPU or for a CPU, and its largest difference."""

    compare: Callable[[bool], Comparison]
    limit: float
    needs_gpu: bool = False


def traced_for_a_gpu(gpu: bool) -> contextlib.AbstractContextManager[None]:
    """A context in which functions are traced for a GPU, also on a CPU."""
    return contextlib.nullcontext() if gpu else compile_for("gpu")


def with_gradients(function: Callable[..., Any], arrays: tuple[jax.Array, ...], upstream: jax.Array) -> Any:
    """The value of a function of these arrays, and its gradients."""
    y, pull_back = jax.vjp(function, *arrays)
    return y, pull_back(upstream.astype(y.dtype))


def normal(*shape: int, seed: int = 0, dtype: Any = jnp.float32) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), dtype)


def attention(
    gpu: bool,
    *,
    keys: int = 1000,
    key_heads: int | None = None,
    padding: bool = False,
    rate: float = 0.0,
    causal: bool = False,
    dtype: Any = jnp.bfloat16,
    implementation: str = "flash",
) -> Comparison:
    """Values and gradients of packed attention. With `key_heads`, queries are apart from keys and values."""
    # On a GPU, the last block of 1,000 positions is not full; 960 positions are padded by a whole block of keys.
    rows, queries, keys, heads, width = (8, keys, keys, 12, 64) if gpu else (2, 20, 40 * keys // 1000, 4, 16)
    if key_heads is None:
        packed: tuple[jax.Array, ...] = (normal(rows, keys, 3, heads, width, dtype=dtype),)
        queries = keys
    else:
        packed = (
            normal(rows, queries, heads, width, dtype=dtype),
            normal(rows, keys, 2, key_heads, width, dtype=dtype),
        )
    lengths = np.linspace(keys // 3, keys, rows).astype(int)
    mask = jnp.arange(keys)[None] < lengths[:, None] if padding else None
    upstream = normal(rows, queries, heads, width, seed=1)
    settings: dict[str, Any] = {"causal": causal, "dropout_rate": rate}
    settings["dropout_key"] = jax.random.key(3) if rate else None

    def ours(*packed):
        if implementation == "flash":
            return flash_attention(*packed, key_mask=mask, interpret=not gpu, **settings)
        return packed_attention(*packed, implementation=implementation, **settings)

    def plain(*packed):
        seen = None if mask is None else mask[:, None, None]
        return dot_product_attention(*unpacked(*packed), attention_mask=seen, implementation="xla", **settings)

    @jax.jit
    def run(packed, upstream):
        with traced_for_a_gpu(gpu):
            return with_gradients(ours, packed, upstream)

    exact = tuple(x.astype(jnp.float32) for x in packed)
    precision = "highest" if dtype == jnp.float32 else None

    def timed():
        with jax.default_matmul_precision(precision):
            return run(packed, upstream)

    with jax.default_matmul_precision("highest"):
        expected = jax.jit(functools.partial(with_gradients, plain))(exact, upstream)
    return Comparison(timed, expected)


def dropout_bits(gpu: bool) -> Comparison:
    """The pairs that flash keeps: of queries that see all keys alike, and values that tell them apart."""
    rows, heads, length, rate, key, first_row = 3, 4, 256 if gpu else 24, 0.3, jax.random.key(7), 5
    width = min(128, length)
    same = jnp.zeros((rows, length, heads, width), jnp.bfloat16)

    @jax.jit
    def run():
        settings: dict[str, Any] = {
            "dropout_rate": rate,
            "dropout_key": key,
            "first_row": first_row,
            "interpret": not gpu,
        }
        kept = []
        for start in range(0, length, width):
            window = jnp.eye(length, dtype=jnp.bfloat16)[:, start : start + width]
            values = jnp.broadcast_to(window[None, :, None], same.shape)
            with traced_for_a_gpu(gpu):
                kept.append(flash_attention(same, same, values, **settings) > 0)
        return jnp.concatenate(kept, axis=3).swapaxes(1, 2)

    return Comparison(run, keep_mask(key, (rows, heads, length, length), rate, first_row=first_row))


def lstm(gpu: bool) -> Comparison:
    """Outputs and gradients of cuDNN's LSTM at a size of AWD-LSTM, with padding."""
    del gpu
    rows, positions, width, units = 80, 70, 400, 1150
    lengths = jnp.asarray(np.linspace(0, positions, rows).astype(np.int32))
    shapes = (rows, positions, width), (width, 4, units), (units, 4, units), (4, units)
    arrays = tuple(normal(*shape, seed=n) * (1.0 if n == 0 else units**-0.5) for n, shape in enumerate(shapes))
    upstream, state = normal(rows, positions, units, seed=9), (jnp.zeros((rows, units)),) * 2

    def outputs(implementation, x, w_x, w_h, b):
        settings = {"lengths": lengths, "implementation": implementation}
        return recurrent(LSTM, x, state, w_x=w_x, w_h=w_h, b=b, **settings)[0]

    by_cudnn, by_scan = (
        jax.jit(functools.partial(with_gradients, functools.partial(outputs, name))) for name in ("cudnn", "scan")
    )
    with jax.default_matmul_precision("highest"):
        expected = by_scan(arrays, upstream)
    return Comparison(lambda: by_cudnn(arrays, upstream), expected)


def embeddings(gpu: bool) -> Comparison:
    """The gradient of embeddings whose words are as unequal as in a text."""
    count, vocabulary, width = (16_384, 50_304, 768) if gpu else (300, 40, 8)
    ids = (np.random.default_rng(0).random(count) ** 4 * vocabulary).astype(np.int32)
    upstream = normal(count, width, dtype=jnp.bfloat16)
    table = jnp.zeros((vocabulary, width))
    expected = np.zeros(table.shape)
    np.add.at(expected, ids, np.asarray(upstream, np.float64))

    @jax.jit
    def run(table, ids, upstream):
        with traced_for_a_gpu(gpu):
            return with_gradients(lambda table: embed(table, ids, jnp.bfloat16), (table,), upstream)[1][0]

    return Comparison(lambda: run(table, jnp.asarray(ids), upstream), expected)


def loss(gpu: bool) -> Comparison:
    """The loss of a large vocabulary by chunks, and its gradients."""
    tokens, width, vocabulary = (16_384, 768, 50_257) if gpu else (60, 8, 41)
    arrays = normal(tokens, width), normal(width, vocabulary, seed=1) * width**-0.5, normal(vocabulary, seed=2)
    targets = jnp.asarray(np.random.default_rng(3).integers(vocabulary, size=tokens), jnp.int32)
    settings: dict[str, Any] = {"label_smoothing": 0.1, "z_loss": 1e-3}

    def ours(x, w, b):
        return linear_cross_entropy(x, w, b, targets, matmul_dtype=jnp.bfloat16, **settings).objective

    @jax.checkpoint  # a row of logits at a time
    def plain_row(x, w, b, target):
        z = x @ w + b
        log_normalizer = jax.nn.logsumexp(z)
        smoothed = 0.9 * z[target] + 0.1 * z.mean()
        return log_normalizer - smoothed + 1e-3 * log_normalizer**2

    def plain(x, w, b):
        return jax.lax.map(lambda row: plain_row(row[0], w, b, row[1]), (x, targets), batch_size=1_024).sum()

    @jax.jit
    def run(arrays, upstream):
        with traced_for_a_gpu(gpu):
            return with_gradients(ours, arrays, upstream)

    one = jnp.ones(())
    with jax.default_matmul_precision("highest"):
        expected = jax.jit(functools.partial(with_gradients, plain))(arrays, one)
    return Comparison(lambda: run(arrays, one), expected)


CHECKS = {
    "flash": Check(functools.partial(attention, causal=True), ROUNDED),
    "flash, float32": Check(functools.partial(attention, causal=True, dtype=jnp.float32), 1e-4),
    "flash, dropout": Check(functools.partial(attention, causal=True, rate=0.1), ROUNDED),
    "flash, all seen": Check(functools.partial(attention, keys=960, rate=0.1), ROUNDED),
    "flash, padding": Check(functools.partial(attention, padding=True, rate=0.1), ROUNDED),
    "flash, groups": Check(functools.partial(attention, key_heads=2, padding=True), ROUNDED),
    "flash, dropout bits": Check(dropout_bits, 0.0),
    "attention by hand": Check(functools.partial(attention, causal=True, rate=0.1, implementation="vjp"), ROUNDED),
    "cuDNN attention": Check(functools.partial(attention, causal=True, implementation="cudnn"), ROUNDED, True),
    "cuDNN LSTM": Check(lstm, ROUNDED, True),
    "cross-entropy": Check(loss, ROUNDED),
    "gradient of embeddings": Check(embeddings, 1e-5),
}


def difference(found: Any, expected: Any) -> float:
    """The largest difference of two trees of arrays, as a share of the largest value of each expected array."""
    shares = []
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        theirs = np.asarray(theirs, np.float64)
        shares.append(np.abs(np.asarray(ours, np.float64) - theirs).max() / np.abs(theirs).max())
    return float(np.max(shares))  # NaN if one is


def seconds_of(run: Callable[[], Any]) -> float:
    """The median time of a call."""
    seconds = []
    for _ in range(CALLS):
        start = time.perf_counter()
        jax.block_until_ready(run())
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def passes(name: str, check: Check, gpu: bool) -> bool:
    """Makes a check, and prints its line."""
    if check.needs_gpu and not gpu:
        print(f"{name}: skipped, it needs a GPU")
        return True
    try:
        compared = check.compare(gpu)
        found = difference(compared.run(), compared.expected)
        taken = f", {seconds_of(compared.run) * 1e3:.3f} ms" if gpu else ""
    except Exception as error:  # the next check may say more
        print(f"{name}: FAILED, {type(error).__name__}: {error}", flush=True)
        return False
    good = found <= check.limit
    print(f"{name}: {'ok' if good else 'FAILED'}, {found:.1e}, at most {check.limit:.1e}{taken}", flush=True)
    return good


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 = all checks pass, 1 = one fails."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_checks", description=__doc__)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=f"none = all: {'; '.join(CHECKS)}")
    names = parser.parse_args(arguments).checks or list(CHECKS)
    if unknown := [name for name in names if name not in CHECKS]:
        parser.error(f"unknown check {unknown[0]!r}; choose from: {'; '.join(CHECKS)}")
    device = jax.local_devices()[0]
    print(f"on {device.device_kind}")
    failed = [name for name in names if not passes(name, CHECKS[name], device.platform == "gpu")]
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
