"""Exported functions, called by a process that has only jax, numpy and flatbuffers, give the library's own numbers."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxnlp.convert import encoder_decoders
from jaxnlp.convert.encoders.modernbert import FAMILY as MODERNBERT
from jaxnlp.nn.compute import TransformerCompute
from jaxnlp.tasks import Trained
from jaxnlp.tasks.export import ExportCommand
from jaxnlp.tasks.export.loader import load
from jaxnlp.tasks.export.programs import PLATFORMS
from tests.jaxnlp.tasks.export.models import BERT, MODELS, trained_of
from tests.random_parameters import random_parameters

pytestmark = pytest.mark.thorough

STRANGER = Path(__file__).with_name("stranger.py")
SIZES = {"B": 3, "T": 5, "S": 4}


def random_array(shape, draw):
    """An array of a shape as it is described, such as int32[B, T]: small ids, random floats, and masks of prefixes."""
    dtype, axes = re.fullmatch(r"(\w+)\[(.*)\]", shape).groups()
    sizes = [SIZES.get(axis) or int(axis) for axis in filter(None, axes.split(", "))]
    if dtype == "bool":
        mask = np.arange(SIZES["T"]) < draw.integers(1, SIZES["T"] + 1, SIZES["B"])[:, None]
        mask = mask[:, : sizes[1]] if len(sizes) == 2 else mask[:, None] if sizes[1] == 2 else mask[:, :, None]
        return np.broadcast_to(mask, sizes).copy()
    if dtype == "float32":
        return draw.normal(size=sizes).astype(dtype)
    return draw.integers(0, 256 if dtype == "uint8" else 2, sizes).astype(dtype)  # ids of segments are 0 and 1


def inputs_of(description):
    draw = np.random.default_rng(0)
    return jax.tree.map(lambda shape: random_array(shape, draw), description["inputs"])


def named(arrays):
    """Arrays by the names that `stranger` gives them."""
    cache = arrays.get("cache", [])
    return {name: x for name, x in arrays.items() if name != "cache"} | {f"cache:{n}": x for n, x in enumerate(cache)}


def exported(names, folder):
    """The folders of models, and the outputs of their functions from another process."""
    folders = [folder / name for name in names]
    for name, place in zip(names, folders, strict=True):
        ExportCommand(place, format="jax")(trained_of(name))
        for function, description in read(place)["functions"].items():
            np.savez(place / f"{function}.npz", **named(inputs_of(description)))
    paths = [path for path in sys.path if path]
    environment = {"PATH": os.environ["PATH"], "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(paths)}
    environment["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"  # it compiles in half the time
    subprocess.run([sys.executable, STRANGER, *folders], check=True, cwd=folder, env=environment)
    return dict(zip(names, folders, strict=True))


def read(folder):
    return json.loads((folder / "export.json").read_text(encoding="utf-8"))


def check(name, folder):
    trained = trained_of(name)
    functions = trained.task.exports(trained)
    for function, description in read(folder)["functions"].items():
        with np.load(folder / f"{function}.outputs.npz") as file:
            found = dict(file)
        expected = named(jax.jit(functions[function].apply)(trained.inference_params, inputs_of(description)))
        assert {*found} == {*expected}
        for field, array in expected.items():
            assert not np.isnan(array).any()
            np.testing.assert_allclose(found[field], array, rtol=1e-5, atol=1e-5, err_msg=f"{function} {field}")


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return exported(MODELS, tmp_path_factory.mktemp("programs"))


@pytest.mark.parametrize("name", MODELS)
def test_another_process_gets_the_same_numbers(programs, name):
    check(name, programs[name])


VARIANTS = [
    ("transformer", {"positions": "rotary"}, {}),
    *(("transformer", {**family.fixed, "embeddings": "shared"}, {}) for family in encoder_decoders.families().values()),
    ("bert", {"encoder": dataclasses.replace(BERT, **MODERNBERT.fixed, local_layers=(1,), local_window=4)}, {}),
    ("transformer", {"positions": "relative_bias", "embeddings": "separate"}, {}),
    ("transformer", {"positions": "relative_vectors", "embeddings": "shared"}, {}),
    ("attention", {"attention": "additive", "use_convolution": True}, {}),
    ("gpt", {"tie_embeddings": True, "compute": TransformerCompute(scan_layers=True, dtype="bfloat16")}, {}),
    ("perceiver", {"latent_placement": "along"}, {}),
    ("bert", {"pooling": "lasttoken"}, {}),
    ("vit", {"pooling": "cls", "stem": "convolutional"}, {}),
    ("crf", {"bigram_width": 4}, {"scheme": "none"}),
    ("parser", {}, {"system": "arc_eager"}),
    ("graph_parser", {"decoder": "eisner", "normalised_over": "trees"}, {}),
]


@pytest.mark.parametrize(("name", "fields", "of_processor"), VARIANTS)
def test_variants_give_the_same_numbers_in_float32(tmp_path, name, fields, of_processor):
    task, config, processor = MODELS[name]
    config = dataclasses.replace(config, **fields)
    processor = dataclasses.replace(processor, **of_processor) if of_processor else processor
    config.check(processor)
    params = jax.device_put(random_parameters(config.build(processor), *config.inputs(processor)))
    compute = dataclasses.replace(config.compute, dtype="float32", matmul_dtype=None)
    exact = dataclasses.replace(config, compute=compute).build(processor)
    trained = Trained(task(), exact, params, processor)
    ExportCommand(tmp_path / "out", format="jax")(dataclasses.replace(trained, model=config.build(processor)))
    functions, exports = load(tmp_path / "out"), trained.task.exports(trained)
    for function, description in read(tmp_path / "out")["functions"].items():
        found = named(functions[function](**inputs_of(description)))
        expected = named(jax.jit(exports[function].apply)(trained.inference_params, inputs_of(description)))
        for field, array in expected.items():
            assert not np.isnan(array).any()
            np.testing.assert_allclose(found[field], array, rtol=1e-5, atol=1e-5, err_msg=f"{function} {field}")


def test_programs_are_for_all_platforms(programs):
    program = jax.export.deserialize(bytearray((programs["gpt"] / "read.jax").read_bytes()))
    assert program.platforms == PLATFORMS
