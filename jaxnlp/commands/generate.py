"""`python -m jaxnlp generate`."""

import dataclasses
import logging
from pathlib import Path
from typing import Annotated, Literal

import jax
import numpy as np
import tyro

from jaxnlp.decoding.beam import beam_search
from jaxnlp.decoding.generate import generate as generate_tokens
from jaxnlp.decoding.sampling import Sampling
from jaxnlp.runs import Run, load_run, make_decoder
from jaxnlp.text.words import WordVocabulary

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Generate:
    """Continues a prompt with a trained language model, streaming what is drawn to the terminal."""

    run: tyro.conf.Positional[Path]
    """The run's folder."""
    prompt: str = "\n"
    """Text to continue."""
    max_new_tokens: int = 500
    """Tokens to add."""
    sampling: Annotated[Sampling, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Sampling)
    seed: int = 0
    """The same seed gives the same text."""
    num_samples: int = 1
    """How many continuations."""
    stop: str | None = None
    """A continuation ends behind this token: a character, or a word, "<eol>" for the end of a line; None = at
    max_new_tokens."""
    length_penalty: float = 0.0
    """Beams: the greater, the longer are the continuations that win; of use with a stop."""
    num_beams: int = 1
    """More than 1: search for the likeliest continuations with so many beams, in place of drawing; best first."""
    checkpoint: int | Literal["best", "latest"] = "best"
    """The best on the validation split, the newest, or a step."""

    def __post_init__(self):
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {self.max_new_tokens}")
        if self.num_samples < 1:
            raise ValueError(f"num_samples must be at least 1, got {self.num_samples}")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must lie in [0, 2^32), got {self.seed}")
        if self.num_beams < 1:
            raise ValueError(f"num_beams must be at least 1, got {self.num_beams}")
        if not 0.0 <= self.length_penalty < float("inf"):
            raise ValueError(f"length_penalty must be finite and not negative, got {self.length_penalty}")
        if self.length_penalty and self.num_beams == 1:
            raise ValueError("length_penalty is for beam search: give num_beams, or leave it out")
        if self.num_beams > 1:
            if self.sampling != Sampling() or self.seed != 0:
                raise ValueError(
                    f"beam search draws nothing: leave out temperature, top_k, top_p and seed, or num_beams, "
                    f"{self.num_beams}"
                )
            if self.num_samples > self.num_beams:
                raise ValueError(
                    f"num_samples must be at most num_beams, {self.num_beams}, where beams are searched, "
                    f"got {self.num_samples}"
                )


def generate(command: Generate) -> None:
    """Prints the continuations: the first that is drawn as it grows, all others whole.

    Raises:
      RunError, DamagedCheckpointError: when there is no such run or checkpoint.
      UnknownTokenError: for a prompt that the model's vocabulary cannot spell.
      ValueError: for a stop that is not one token that the model knows, an empty prompt, or one longer than the
        context; with beams, when it cannot hold all new tokens.
    """
    run = load_run(command.run, checkpoint=command.checkpoint)
    if isinstance(run.vocabulary, WordVocabulary) and (unknown := run.vocabulary.count_unknown(command.prompt)):
        name = run.vocabulary.unknown
        _logger.warning("words of the prompt that are not in the vocabulary, and are read as %s: %d", name, unknown)
    if command.num_beams > 1:
        _search(command, run)
    else:
        _draw(command, run)


def _search(command: Generate, run: Run) -> None:
    found = beam_search(
        make_decoder(run.model),
        run.params,
        run.vocabulary.encode(command.prompt)[None],
        num_beams=command.num_beams,
        max_new_tokens=command.max_new_tokens,
        stop=_stop_token(command, run),
        length_penalty=command.length_penalty,
    )
    # There may be fewer than beams.
    rows = [row[:length] for row, length in zip(*map(np.asarray, (found.tokens[0], found.lengths[0])), strict=True)]
    for number, row in enumerate([row for row in rows if len(row)][: command.num_samples], start=1):
        title = _title(number) if command.num_samples > 1 else ""
        print(title, command.prompt, run.vocabulary.decode(row), sep="")


def _stop_token(command: Generate, run: Run) -> int | None:
    if command.stop is None:
        return None
    tokens = run.vocabulary.encode(command.stop)
    if len(tokens) != 1:
        raise ValueError(f"stop must be one token, got {command.stop!r}, which is {len(tokens)}")
    if isinstance(run.vocabulary, WordVocabulary) and run.vocabulary.count_unknown(command.stop):
        raise ValueError(f"stop must be a word that the model knows, got {command.stop!r}")
    return int(tokens[0])


def _draw(command: Generate, run: Run) -> None:
    prompt = np.tile(run.vocabulary.encode(command.prompt), (command.num_samples, 1))
    stop = _stop_token(command, run)
    steps = generate_tokens(
        make_decoder(run.model),
        run.params,
        prompt,
        max_new_tokens=command.max_new_tokens,
        key=jax.random.key(command.seed),
        sampling=command.sampling,
        stop=stop,
    )
    several = command.num_samples > 1
    new_tokens: list[np.ndarray] = []
    for tokens in steps:
        if not new_tokens:
            # Not before the first token has come: an error leaves nothing printed.
            print(_title(1) if several else "", command.prompt, sep="", end="", flush=True)
        if not any(before[0] == stop for before in new_tokens):  # the others may go on
            print(run.vocabulary.decode(tokens[:1]), end="", flush=True)
        new_tokens.append(tokens)
    print()
    for row in range(1, command.num_samples):
        drawn = [int(tokens[row]) for tokens in new_tokens]
        if stop in drawn:
            drawn = drawn[: drawn.index(stop) + 1]
        print(_title(row + 1), command.prompt, run.vocabulary.decode(drawn), sep="")


def _title(number: int) -> str:
    return f"--- sample {number} ---\n"
