"""Perplexity of texts under a language model."""

import dataclasses
import functools
import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import tyro

from jaxnlp.decoding.generation import bucket_length, prompt_buckets
from jaxnlp.inference.arguments import one_or_many
from jaxnlp.input_files.notes import report_blank, report_skipped
from jaxnlp.input_files.rows import TextColumns, chunks, position_of, rows_of
from jaxnlp.input_files.text_files import line_feeds
from jaxnlp.ops.compiler_options import jit
from jaxnlp.ops.losses import token_nll
from jaxnlp.tasks import Command, Trained
from jaxnlp.tasks.language_model.prompts import count_unknown, encode_continuation
from jaxnlp.text import UnknownTokenError
from jaxnlp.text.blank_texts import blank_rows, is_blank
from jaxnlp.text.raw_texts import one_line, require_texts
from jaxnlp.typing import Array, Params

LONGEST = 1024
"""Number of tokens to read at once by a model without a maximum length."""
_logger = logging.getLogger(__name__)


class TextScore(NamedTuple):
    """How probable a text is.

    Attributes:
      nll: the sum of the negative log-likelihoods of its tokens, in nats.
      tokens: their number.
      unknown: how many are unknown words.
    """

    nll: float
    tokens: int
    unknown: int = 0

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-likelihood; NaN if no token is scored."""
        return math.exp(self.nll / self.tokens) if self.tokens else math.nan


NO_SCORE = TextScore(0.0, 0)
"""The score of a text that is not in the vocabulary."""


def check_scorer(scorer: Trained, name: str) -> None:
    """Raises: ValueError, with this name, for a model that is not a language model."""
    if "perplexity" not in scorer.task.methods:
        raise ValueError(f"{name} is not a language model: its task is {type(scorer.task).__name__}")


def score_text(trained: Trained, text: str, given: str = "") -> TextScore:
    """The score of a text after another one. Without it, the first token, or the start token, is only read.

    A text that is longer than the context is read in windows, with at least half a context before each token. Line ends
    become LF.

    Raises: UnknownTokenError for a text that is not in the model's vocabulary.
    """
    vocabulary, text, given = trained.processor, line_feeds(text), line_feeds(given)
    before = vocabulary.encode(given) if given else []
    read = np.concatenate([before, encode_continuation(vocabulary, text) if given else vocabulary.encode(text)])
    first = max(len(before) - 1, 0)
    losses = _token_losses(trained, read.astype(np.int32))[first:]
    words = text.split()
    unknown = count_unknown(vocabulary, " ".join(words if given else words[1:]))
    return TextScore(float(losses.sum(dtype=np.float64)), len(losses), unknown)


def _token_losses(trained: Trained, ids: np.ndarray) -> np.ndarray:
    """Negative log-likelihood in nats of each token but the first: [N] int -> [N - 1]."""
    model: Any = trained.model
    window = model.config.max_length or LONGEST
    losses, scored = np.zeros(max(len(ids) - 1, 0), np.float32), 0
    while scored < len(losses):
        start = max(0, scored - window // 2) if scored else 0
        end = min(start + window, len(losses))
        length = bucket_length(end - start, window)
        tokens, targets = (np.zeros((1, length), np.int32) for _ in range(2))
        tokens[0, : end - start], targets[0, : end - start] = ids[start:end], ids[start + 1 : end + 1]
        found = np.asarray(_losses_of(model)(trained.inference_params, tokens, targets))
        losses[scored:end] = found[0, scored - start : end - start]
        scored = end
    return losses


@functools.lru_cache(maxsize=8)
def _losses_of(model: Any) -> Callable[[Params, Any, Any], Array]:
    """tokens, targets [B, T] int -> the loss of each target in nats, [B, T] float32."""

    def losses(params: Params, tokens: Array, targets: Array) -> Array:
        return token_nll(model.apply({"params": params}, tokens), targets)

    return jit(losses)


def warm_up_perplexity(trained: Trained) -> None:
    """Compiles the programs of `perplexity` ahead, for texts of up to 1,024 tokens."""
    model: Any = trained.model
    for length in prompt_buckets(model.config.max_length):
        if length <= LONGEST:
            tokens = np.zeros((1, length), np.int32)
            jax.block_until_ready(_losses_of(model)(trained.inference_params, tokens, tokens))


@one_or_many
def perplexity(trained: Trained, texts: Sequence[str], *, given: str = "") -> list[float]:
    """The perplexity of each text, or of one text: exp of the mean negative log-likelihood of its tokens.

    Args:
      texts: one text, or a list of N. A text that is longer than the context is read in windows. Line ends become LF.
      given: a text before each of them, which is only read. Without it, the first token of a text is only read.

    Returns: NaN for a text without a scored token, and for one that is not in the vocabulary; warnings in the log count
      such texts, and unknown words.

    Raises: UnknownTokenError if `given` is not in the model's vocabulary.
    """
    require_texts((given,), "a text as given")
    trained.processor.encode(line_feeds(given))
    scores, unknown = list[TextScore](), dict[int, UnknownTokenError]()
    for index, text in enumerate(require_texts(texts, "texts")):
        try:
            scores.append(score_text(trained, text, given))
        except UnknownTokenError as error:
            scores.append(NO_SCORE)
            unknown[index] = error
    if unknown:
        index, first = next(iter(unknown.items()))
        _logger.warning(
            "texts that are not in the vocabulary, whose perplexity is NaN: %s of %s, the first at index %d: %s",
            *(f"{len(unknown):,}", f"{len(scores):,}", index, first),
        )
    without = [index for index, score in enumerate(scores) if not score.tokens and index not in unknown]
    if without:
        _logger.warning(
            "texts without a token after their first, whose perplexity is NaN: %s of %s, the first at index %d; give a "
            "text before them with given=",
            *(f"{len(without):,}", f"{len(scores):,}", without[0]),
        )
    _warn_of_unknown(trained, sum(score.unknown for score in scores), sum(score.tokens for score in scores))
    return [score.perplexity for score in scores]


def _warn_of_unknown(trained: Trained, unknown: int, scored: int) -> None:
    """Warns of scored unknown words, which make perplexities lower."""
    if unknown:
        _logger.warning(
            "%s of %s scored words are not in the vocabulary, and are read as %s",
            *(f"{unknown:,}", f"{scored:,}", trained.processor.unknown),
        )


@dataclasses.dataclass(frozen=True)
class Perplexity(Command):
    """Prints the perplexity of texts under a language model.

    It is exp of the mean negative log-likelihood of a text's tokens. A line for each text has its perplexity, the
    number of tokens and the text, with tabs between them. The first token of a text is only read. Perplexities of
    models with other tokens are not comparable. A text of one token, or outside the vocabulary, has none, and a note on
    standard error counts such texts. A warning counts unknown words.
    """

    texts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts; none = those of the file, or of standard input."""
    file: Path | None = None
    """A file with one text a line, or a table (.csv, .tsv, .jsonl) with a column named text; - = standard
    input."""

    def __call__(self, trained: Trained) -> None:
        """Prints the lines. Raises: ValueError, OSError for texts that are missing or unreadable."""
        count, blank, skipped = 0, list[int](), list[str]()
        unknown = scored = 0
        for rows in chunks(rows_of(self.texts, (), self.file, count=1, columns=TextColumns.of_run(trained.config))):
            blank += blank_rows(rows, count)
            for (text,) in rows:
                count += 1
                try:
                    score, reason = score_text(trained, text), "no token after its first"
                except UnknownTokenError as error:
                    score, reason = NO_SCORE, str(error)
                unknown, scored = unknown + score.unknown, scored + score.tokens
                columns = (f"{score.perplexity:.4f}", score.tokens) if score.tokens else ("", "")
                print(*columns, one_line(text), sep="\t", flush=True)
                if not score.tokens and not is_blank((text,)):
                    skipped.append(f"{position_of(self.texts, self.file, count)}: {reason}")
        _warn_of_unknown(trained, unknown, scored)
        if skipped and count == len(skipped):
            raise ValueError(skipped[0])
        report_skipped(skipped, count, "texts", "perplexity")
        report_blank(blank, count, self.texts, self.file)
