import itertools

import jax
import numpy as np
import pytest
from train.evaluation import compile_evaluation, evaluate, sample_text

from jaxnlp.runs import make_decoder
from train.loop import set_up
from train.parallel import make_parallel


def surprises(params, tokens):
    """Of each token but the first, given the one before it, under the tests' bigram model without dropout; in NumPy."""
    tokens = np.asarray(tokens)
    embedding, head = (
        np.asarray(params[name][leaf], np.float64) for name, leaf in [("tokens", "embedding"), ("head", "kernel")]
    )
    logits = embedding[tokens[:-1]] @ head + np.asarray(params["head"]["bias"], np.float64)
    return np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(logits)), tokens[1:]]


@pytest.mark.parametrize("batch_size", [4, 5])
@pytest.mark.parametrize("mode", ["jit", "pmap"])
def test_score_is_the_mean_over_the_whole_split_whatever_the_batches_and_devices(tiny_config, mode, batch_size):
    setup = set_up(tiny_config(**{"data.evaluation_batch_size": batch_size}))
    layout = make_parallel(mode)
    step = compile_evaluation(setup.loss_fn, layout)
    params = layout.replicate(setup.state).evaluation_params
    text = setup.corpus.vocabulary.decode(
        itertools.chain.from_iterable(b["targets"][b["loss_mask"]] for b in setup.corpus.split("validation").batches)
    )
    assert len(text) == 89
    first = next(iter(setup.corpus.split("validation").batches))["tokens"][0, 0]
    expected = surprises(setup.state.params, [first, *setup.corpus.vocabulary.encode(text)])
    scores, counts = evaluate(step, params, setup.corpus.split("validation").batches, layout)
    assert counts["loss"] == 89
    np.testing.assert_allclose(scores["loss"], expected.mean(), rtol=1e-5)


def test_score_is_the_same_each_time(tiny_config):
    setup, layout = set_up(tiny_config()), make_parallel("jit", jax.devices()[:1])
    step = compile_evaluation(setup.loss_fn, layout)
    first, second = (evaluate(step, setup.state.params, setup.corpus.split("train").batches, layout) for _ in range(2))
    assert first == second
    assert first[1]["loss"] == 809


def test_split_without_batches_is_refused(tiny_config):
    setup, layout = set_up(tiny_config()), make_parallel("jit", jax.devices()[:1])
    with pytest.raises(ValueError, match="no metrics to add up"):
        evaluate(compile_evaluation(setup.loss_fn, layout), setup.state.params, [], layout)


@pytest.fixture(scope="module")
def sampler(tiny_config):
    setup = set_up(tiny_config())
    decoder = make_decoder(setup.model)

    def sample(seed, prompt="the", length=12):
        return sample_text(decoder, setup.state.params, setup.corpus.vocabulary, prompt, length=length, seed=seed)

    return sample


def test_sample_is_the_prompt_and_as_many_characters_as_asked(sampler):
    text = sampler(0)
    assert text.startswith("the")
    assert len(text) == 15
    assert set(text) <= set(" adehimnost")
    assert len(sampler(0, prompt="s", length=1)) == 2


def test_seed_alone_decides_the_sample(sampler):
    assert sampler(0) == sampler(0)
    assert len({sampler(seed) for seed in range(4)}) == 4
