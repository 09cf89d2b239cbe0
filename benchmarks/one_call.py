"""A call for one text next to the forward pass of its own tokens: what the tokenizer and padding cost.

A call pads its tokens to a few lengths, so that few programs are compiled. Here the forward pass has no padding.
"""

import functools

from benchmarks.answers import LONG, SHORT, minilm, our_vector
from benchmarks.case import OURS, Case, Step

TWO_WORDS = "Not dull."
FORWARD = "forward_pass"


def cases() -> list[Case]:
    texts = {"vector of 2 words": TWO_WORDS, "vector of 10 words": SHORT, "vector of 500 characters": LONG}
    return [
        Case(
            "one_call",
            {OURS: functools.partial(our_vector, text), FORWARD: functools.partial(forward_pass, text)},
            variant,
        )
        for variant, text in texts.items()
    ]


def forward_pass(text: str) -> Step:
    """The text's vector from its tokens, in one compiled program that has exactly their length."""
    import jax
    import numpy as np

    import jaxnlp
    from jaxnlp.tasks.bert_verbs.encodings import exported_embed, vocabulary_of

    run = jaxnlp.load_pretrained(minilm())
    (tokens,) = vocabulary_of(run).tokenize([text], max_length=512).tokens
    inputs = {"tokens": np.asarray(tokens, np.int32)[None], "attention_mask": np.ones((1, len(tokens)), bool)}
    program = jax.jit(exported_embed(run).apply)
    return lambda: np.asarray(program(run.inference_params, inputs)["vectors"][0])
