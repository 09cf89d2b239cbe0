"""`jaxnlp generate RUN`: text from a language model."""

import dataclasses
import functools
import itertools
import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import tyro

from jaxnlp.cli.options import LIKELY
from jaxnlp.config import Count, NonNegative, Seed, UserPath
from jaxnlp.decoding.beam import beam_search
from jaxnlp.decoding.distinct_texts import Hypothesis, distinct_texts
from jaxnlp.decoding.generation import Decoder, decoder_of, prompt_buckets
from jaxnlp.decoding.generation import generate as generate_tokens
from jaxnlp.decoding.sampling import Sampling
from jaxnlp.inference.arguments import one_or_many
from jaxnlp.inference.compilation import announce_no_more
from jaxnlp.input_files.rows import read_text
from jaxnlp.input_files.text_files import line_feeds
from jaxnlp.tasks import Command, Trained
from jaxnlp.tasks.language_model.prompts import (
    count_unknown,
    decode_continuation,
    encode_continuation,
    is_complete,
    known_prompt,
)
from jaxnlp.tasks.language_model.text_scores import check_scorer, score_text
from jaxnlp.text.raw_texts import require_texts

_logger = logging.getLogger(__name__)
LINE_BREAK = "\n"
_LONGEST_AHEAD = 1_024


@dataclasses.dataclass(frozen=True)
class Generate(Command):
    """Generates text from a prompt, streaming it to the terminal."""

    prompt: Annotated[str, LIKELY] = LINE_BREAK
    """Text to continue, with LF at its line ends; - = standard input, without its last line end. Without a line break
    in the vocabulary, the default is its first token."""
    max_new_tokens: Count = 500
    """Number of tokens to generate."""
    sampling: Annotated[Sampling, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Sampling)
    seed: Seed = 0
    """The same seed gives the same text."""
    num_samples: Count = 1
    """Number of texts; with beams they are distinct, and perhaps fewer."""
    stop: str | None = None
    """Stop after this token: a character, or a word; "<eol>" is the end of a line. None = stop at max_new_tokens."""
    length_penalty: NonNegative = 0.0
    """Length penalty of beam search: larger values favour longer outputs. Useful with a stop."""
    length_offset: NonNegative = 5.0
    """The length penalty divides by ((offset + length) / (offset + 1))^penalty: 5 in Wu et al. 2016, 0 in
    Transformers."""
    num_beams: Count = 1
    """Number of beams; above 1: beam search instead of sampling, with the best text first."""
    json: bool = False
    """Print a JSON object for each complete text, with its prompt."""
    scorer: UserPath | None = None
    """A language model, such as a folder of GPT-2, to print the perplexity of each continuation."""

    def further_models(self) -> tuple[str, ...]:
        return () if self.scorer is None else (self.scorer,)

    def __post_init__(self):
        super().__post_init__()
        if self.length_penalty and self.num_beams == 1:
            raise ValueError("length_penalty applies only to beam search; set num_beams")
        self.only_if(self.length_penalty > 0, "a positive length_penalty", "length_offset")
        if self.num_beams > 1:
            if self.sampling != Sampling() or self.seed != 0:
                raise ValueError("num_beams cannot be combined with temperature, top_k, top_p or seed")
            if self.num_samples > self.num_beams:
                raise ValueError(f"--num-samples must be at most --num-beams, {self.num_beams}, got {self.num_samples}")

    def __call__(self, trained: Trained, scorer: Trained | None = None) -> None:
        """Prints the texts: the first sample token by token, all others when they are complete.

        Raises:
          UnknownTokenError: for a prompt that is not in the model's vocabulary.
          ValueError: for a stop that is not one token, a prompt that is empty or too long, a context that is too short
            for beam search, and a scorer that is not a language model.
        """
        if scorer is not None:
            check_scorer(scorer, f"--scorer {self.scorer}")
        piped = self.prompt == "-"
        whole = dataclasses.replace(self, prompt=read_text(Path("-")).removesuffix("\n")) if piped else self
        given, stop = whole._started(trained), self._stop_token(trained)
        if given.num_beams == 1:
            given._draw(trained, stop, scorer)
            return
        for number, hypothesis in enumerate(given._hypotheses(trained, stop)[: given.num_samples], start=1):
            given._print_whole(number, hypothesis.text, scorer)

    def _started(self, trained: Trained) -> "Generate":
        """The request with LF at line ends, and a known token instead of an unknown default prompt; a warning counts
        unknown words."""
        vocabulary, prompt = trained.processor, line_feeds(self.prompt)
        if unknown := count_unknown(vocabulary, prompt):
            _logger.warning("unknown words of the prompt become %s; their number: %d", vocabulary.unknown, unknown)
        if self.prompt == LINE_BREAK:
            prompt = known_prompt(prompt, vocabulary)
        return dataclasses.replace(self, prompt=prompt)

    def _stop_token(self, trained: Trained) -> int | None:
        if self.stop is None:
            return None
        vocabulary = trained.processor
        tokens = encode_continuation(vocabulary, self.stop)
        if len(tokens) != 1:
            raise ValueError(f"stop must be one token, got {self.stop!r}, which has {len(tokens)} tokens")
        if count_unknown(vocabulary, self.stop):
            raise ValueError(f"stop must be a word of the vocabulary, got {self.stop!r}")
        return int(tokens[0])

    def _print_whole(self, number: int, continuation: str, scorer: Trained | None) -> None:
        if self.json:
            fields: dict[str, Any] = {"prompt": self.prompt, "text": self.prompt + continuation}
            if scorer is not None:
                score = score_text(scorer, continuation, self.prompt)
                value = score.perplexity if score.tokens else None  # JSON does not have NaN
                fields |= {"scorer_perplexity": value, "scorer_tokens": score.tokens}
            print(json.dumps(fields, ensure_ascii=False))
        else:
            print(self._title(number), self.prompt, continuation, sep="")
            self._print_score(continuation, scorer)

    def _print_score(self, continuation: str, scorer: Trained | None) -> None:
        if scorer is not None:
            score = score_text(scorer, continuation, self.prompt)
            print(f"--- perplexity {score.perplexity:.2f} of {score.tokens} tokens, scored by {self.scorer} ---")

    def _hypotheses(self, trained: Trained, stop: int | None) -> list[Hypothesis]:
        """The results of beam search with distinct texts, best first."""
        prompt = trained.processor.encode(self.prompt)[None]
        beams = beam_search(
            self._decoder(trained, prompt),
            trained.inference_params,
            prompt,
            num_beams=self.num_beams,
            max_new_tokens=self.max_new_tokens,
            stop=stop,
            length_penalty=self.length_penalty,
            length_offset=self.length_offset,
        )
        arrays = map(np.asarray, (beams.tokens[0], beams.lengths[0], beams.scores[0]))
        rows = [(row[:length].tolist(), float(score)) for row, length, score in zip(*arrays, strict=True)]
        return distinct_texts(rows, functools.partial(decode_continuation, trained.processor))

    def text(self, trained: Trained) -> str:
        """The prompt and one continuation; "" for a prompt without tokens."""
        given, stop = self._started(trained), self._stop_token(trained)
        if not len(trained.processor.encode(given.prompt)):
            return ""
        if given.num_beams > 1:
            return given.prompt + given._hypotheses(trained, stop)[0].text
        row = [int(tokens[0]) for tokens in given._drawn(trained, stop)]
        return given.prompt + decode_continuation(trained.processor, row)

    def _drawn(self, trained: Trained, stop: int | None) -> Iterator[np.ndarray]:
        prompt = np.tile(trained.processor.encode(self.prompt), (self.num_samples, 1))
        return generate_tokens(
            self._decoder(trained, prompt),
            trained.inference_params,
            prompt,
            max_new_tokens=self.max_new_tokens,
            key=jax.random.key(self.seed),
            sampling=self.sampling,
            stop=stop,
        )

    def _decoder(self, trained: Trained, prompt: np.ndarray) -> Decoder:
        return decoder_of(trained.model, prompt.shape[1] + self.max_new_tokens)

    def _draw(self, trained: Trained, stop: int | None, scorer: Trained | None) -> None:
        decode = functools.partial(decode_continuation, trained.processor)
        new_tokens: list[np.ndarray] = []
        stopped, pending = False, list[int]()
        drawn = self._drawn(trained, stop)
        first = list(itertools.islice(drawn, 2))  # before the text: errors, and the compilation of both programs
        announce_no_more()
        for tokens in itertools.chain(first, drawn):
            if not new_tokens and not self.json:
                print(self._title(1), self.prompt, sep="", end="", flush=True)
            if not stopped and not self.json:  # the other samples may continue
                pending.append(int(tokens[0]))
                text = decode(pending)
                if is_complete(trained.processor, pending, text) or tokens[0] == stop:
                    print(text, end="", flush=True)
                    pending = []
            stopped = stopped or tokens[0] == stop
            new_tokens.append(tokens)
        print(decode(pending), end="")
        rows = np.stack(new_tokens, axis=1).tolist()
        continuations = [decode(_until(stop, row)) for row in rows]
        if not self.json:
            print()
            self._print_score(continuations[0], scorer)
        for row in range(0 if self.json else 1, self.num_samples):
            self._print_whole(row + 1, continuations[row], scorer)

    def _title(self, number: int) -> str:
        return f"--- sample {number} ---\n" if self.num_samples > 1 else ""


def _until(stop: int | None, row: list[int]) -> list[int]:
    """The tokens before the stop."""
    return row[: row.index(stop) + 1] if stop in row else row


def warm_up(
    trained: Trained,
    *,
    max_new_tokens: int = 500,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> None:
    """Compiles the programs of `generate` ahead, for prompts of all lengths up to 1,024 tokens."""
    key = jax.random.key(0)
    for length in prompt_buckets(decoder_of(trained.model).capacity):
        if length > _LONGEST_AHEAD:
            break
        decoder = decoder_of(trained.model, length + max_new_tokens)
        prompt, sampling = np.zeros((1, length), np.int32), Sampling(temperature, top_k, top_p)
        list(generate_tokens(decoder, trained.inference_params, prompt, max_new_tokens=2, key=key, sampling=sampling))


@one_or_many
def generate(
    trained: Trained,
    prompts: Sequence[str],
    *,
    max_new_tokens: int = 500,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    stop: str | None = None,
    num_beams: int = 1,
    length_penalty: float = 0.0,
    length_offset: float = 5.0,
) -> list[str]:
    """Each prompt, or one prompt, with its continuation; "" for a prompt without tokens.

    Args:
      prompts: one text to continue, or a list of N. Line ends become LF.
      max_new_tokens: number of tokens to generate.
      temperature: divides the logits; 0 takes the most probable token each time.
      top_k: sample only from the k most probable tokens; None = from all.
      top_p: sample only from the smallest set of tokens with this total probability; None = from all.
      seed: the same seed gives the same text. All prompts of a list share random numbers: change the seed for another
        sample.
      stop: stop after this token: a character, or a word; "<eol>" is the end of a line. None = stop at max_new_tokens.
      num_beams: number of beams; above 1: beam search instead of sampling.
      length_penalty: of beam search; larger values favour longer texts.
      length_offset: of the length penalty: 5 in Wu et al. 2016, 0 in Transformers.

    Raises: ValueError for invalid options and prompts.
    """
    sampling = Sampling(temperature, top_k, top_p)
    options: dict[str, Any] = {"sampling": sampling, "seed": seed, "stop": stop, "num_beams": num_beams}
    options |= {"length_penalty": length_penalty, "length_offset": length_offset}
    texts = list[str]()
    for index, prompt in enumerate(require_texts(prompts, "prompts")):
        try:
            texts.append(Generate(prompt, max_new_tokens, **options).text(trained))
        except ValueError as error:
            error.add_note(f"It is the prompt with the index {index}.")
            raise
    return texts
