"""What the evaluators of every family measure on several devices is what they measure on one."""

import functools

import jax
import numpy as np
import pytest

from jaxnlp.tasks import Metric, Trained
from tests.guards import test_families as guards
from tests.random_parameters import random_parameters
from tests.train.parallel.modes import MODES
from tests.train.parallel.test_modes import FAMILIES, standard_promotion
from train.evaluation.scoring import SplitScoring
from train.parallel import make_parallel
from train.run.init_from import begin
from train.run.setup import set_up

__all__ = ["standard_promotion"]
files = guards.files


def measured(config, mode="jit", mesh=None, devices=1):
    """What each evaluator measures of a model that is not trained, or why it does not apply."""
    layout = make_parallel(mode, jax.devices()[:devices], mesh=mesh)
    setup = set_up(begin(config), devices=layout.devices)
    layout = layout.of_model(setup.config.model, setup.abstract_state.params)
    inputs = setup.config.model.inputs(setup.corpus.processor)
    params = layout.place(jax.device_put(random_parameters(setup.model, *inputs, spread=0.3)))
    scoring = SplitScoring(
        Trained(config.task, setup.model, params, setup.corpus.processor),
        setup.corpus.split("validation"),
        "validation",
        training=setup.corpus.splits.get("train"),
        objective=setup.objective,
        layout=layout,
        kept={},
    )
    found = {}
    for evaluator, make in config.task.evaluators.items():
        try:
            found |= {(evaluator, name): metric for name, metric in make()(scoring).metrics.items()}
        except ValueError as error:  # such as a threshold for ten classes
            found[evaluator, str(error)] = Metric(0.0, 0)
    return found


@pytest.fixture(scope="module")
def on_one_device(files):
    """Evaluates a family on one device, once."""
    return functools.cache(lambda family: measured(FAMILIES[family](files)))


def assert_measures_the_same(config, mode, one):
    found = measured(config, *MODES[mode])
    assert found.keys() == one.keys()
    for name in one:
        np.testing.assert_allclose(found[name], one[name], rtol=1e-5, atol=1e-5, err_msg=str(name))


@pytest.mark.thorough
@pytest.mark.parametrize(("family", "mode"), [("GPT", "tensor and fsdp")])
def test_several_devices_measure_what_one_does(family, mode, on_one_device, files):
    assert_measures_the_same(FAMILIES[family](files), mode, on_one_device(family))


BOTH_AXES = "tensor and fsdp"
OTHERS = [mode for mode in MODES if mode != BOTH_AXES]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("family", "mode"),
    [(name, mode) for index, name in enumerate(FAMILIES) for mode in (BOTH_AXES, OTHERS[index % len(OTHERS)])],
)
def test_evaluators_of_every_family_measure_the_same_over_both_axes_and_in_a_further_mode(
    family, mode, on_one_device, files
):
    assert_measures_the_same(FAMILIES[family](files), mode, on_one_device(family))
