import jax
import numpy as np
import pytest

from jaxnlp.decoding.completion import complete
from jaxnlp.decoding.generation import Decoder

CAPACITY = 64


def count_up(params, tokens, cache, count):
    """After token t comes t + 1, modulo 10."""
    return jax.nn.one_hot((tokens + params["step"]) % 10, 10), cache


def make_decoder(capacity):
    return Decoder(lambda params: params, count_up, lambda batch: (), capacity)


DECODER = make_decoder(CAPACITY)


def completed(prompts, *, stop=9, most=20, batch_sizes=(1, 4), decoder=DECODER):
    found = complete(
        decoder,
        {"step": np.int32(1)},
        [np.array(prompt, np.int32) for prompt in prompts],
        stop=stop,
        max_new_tokens=most,
        batch_sizes=batch_sizes,
    )
    assert all(row.dtype == np.int32 for row in found)
    return [row.tolist() for row in found]


def test_each_prompt_is_continued_until_the_stop():
    assert completed([[5], [1, 2], [7], [4, 3, 2, 6]]) == [[6, 7, 8], [3, 4, 5, 6, 7, 8], [8], [7, 8]]


def test_a_completion_may_be_empty():
    assert completed([[8], [6]]) == [[], [7, 8]]


def test_a_completion_that_does_not_stop_is_cut():
    assert completed([[5], [0]], most=4) == [[6, 7, 8], [1, 2, 3, 4]]


def test_the_stop_may_be_in_the_prompt():
    assert completed([[9], [9, 5]]) == [[0, 1, 2, 3, 4, 5, 6, 7, 8], [6, 7, 8]]


def test_more_prompts_than_a_batch_holds_keep_their_order():
    prompts = [[number % 8] for number in range(11)] + [[1, number % 5] for number in range(7)]
    expected = [list(range(prompt[-1] + 1, 9)) for prompt in prompts]
    assert completed(prompts, batch_sizes=(3,)) == expected
    assert completed(prompts, batch_sizes=(1,)) == expected


def test_a_completion_ends_where_the_context_does():
    (found,) = completed([[0] * 60], stop=-1, most=50)
    assert found == [1, 2, 3, 4, 5]


def test_without_an_end_of_the_context_a_completion_is_as_long_as_asked():
    (found,) = completed([[0] * 100], stop=-1, most=50, decoder=make_decoder(None))
    assert found == [n % 10 for n in range(1, 51)]


def test_no_prompts_no_completions():
    assert completed([]) == []


@pytest.mark.parametrize("settings", [{"most": 0}, {"most": -1}, {"batch_sizes": (0, 4)}], ids=str)
def test_completions_of_nothing_are_refused(settings):
    ((name, number),) = settings.items()
    number = number if name == "most" else 0
    message = f"{name.replace('most', 'max_new_tokens')} must be at least 1, got {number}"
    with pytest.raises(ValueError, match=message):
        completed([[1]], **settings)


def test_a_prompt_longer_than_the_context_is_refused():
    with pytest.raises(ValueError, match="the prompt has 65 tokens, but the model's context has only 64"):
        completed([[1] * 65])
