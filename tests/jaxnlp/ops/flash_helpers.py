"""Lowers kernels for a GPU that is not there."""

import contextlib

import jax

KERNELS = ("flash_forward", "flash_backward_keys", "flash_backward_queries")


def kernel_names(causal):
    return [f"{name}_causal" if causal else name for name in KERNELS]


def an_h100():
    """A context in which JAX lowers kernels for a GPU that is not there; versions before 0.11 need none."""
    try:
        device = jax.sharding.AbstractDevice(device_kind="NVIDIA H100 80GB HBM3", num_cores=132, platform="gpu")
        return jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=device))
    except TypeError:
        return contextlib.nullcontext()


def lowered(gradients, *arguments):
    """The program for a GPU."""
    with an_h100():
        return jax.jit(gradients).trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()
