"""`jaxnlp translate`."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro

from jaxnlp.decoding.distinct_texts import Hypothesis, distinct_texts
from jaxnlp.inference import batches
from jaxnlp.inference.arguments import one_or_many
from jaxnlp.inference.batches import BatchFunction, Shape, decoding_shapes, in_batches
from jaxnlp.input_files.notes import report_blank, report_truncated, warn_of_truncated
from jaxnlp.input_files.rows import TextColumns, chunks, rows_of
from jaxnlp.pages.content import HeatMap
from jaxnlp.saving.atomic_files import PAGES, require_place, write_file, write_partial
from jaxnlp.tasks import Command, Trained
from jaxnlp.tasks.translation.alignment_page import render_page
from jaxnlp.tasks.translation.evaluators import alignment
from jaxnlp.tasks.translation.search import SearchOptions, Translator, padded_sources
from jaxnlp.text.blank_texts import blank_rows, is_blank
from jaxnlp.text.raw_texts import one_line, require_texts
from jaxnlp.text.translation import TranslationProcessor

CHUNK = 64
"""Number of texts whose translations are printed together."""
DEFAULT_MAX_LENGTH = 256
"""Maximum length of a source in tokens for models without a maximum."""
MAX_ALIGNED = 100
"""Maximum number of translations on a page of attention."""


@dataclasses.dataclass(frozen=True)
class Translate(SearchOptions, Command):
    """Translates texts, and prints each translation on a line.

    With --n-best N, each text has N lines that start with the score. The translations are distinct: a text has the best
    score of its token sequences. If the beams have fewer than N texts, the last lines are empty. The translation of an
    empty line is an empty line, with a score of 0. Sources are truncated to the model's context, or to 256 tokens
    without one, end symbol included; evaluation truncates to the maximum length of the data instead. A note on standard
    error counts truncated sources.
    """

    texts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts; none = those of the file, or of standard input."""
    file: Path | None = None
    """A file with one text a line; - = standard input."""
    n_best: int = 1
    """Number of distinct translations of each text, best first; at most num_beams. The beams may have fewer."""
    json: bool = False
    """Print a JSON object for each text, with its translations and their scores, without empty lines for missing
    ones."""
    alignment: Path | None = None
    """Also write a page with the attention of the best translations' tokens to the source tokens, for the first 100
    texts."""

    def __post_init__(self):
        super().__post_init__()
        if not 1 <= self.n_best <= self.num_beams:
            raise ValueError(f"--n-best must be from 1 to --num-beams, which is {self.num_beams}, got {self.n_best}")

    def __call__(self, trained: Trained) -> None:
        """Prints the translations, those of the first texts before it reads the rest.

        Raises: ValueError, OSError for texts that are missing or unreadable, and when the page cannot be written.
        """
        require_place(self.alignment, *PAGES, option="--alignment")
        translator = Translator.of(trained.model, trained.processor.symbols)
        processor: TranslationProcessor = trained.processor
        max_length = max_source_length(trained)
        count = translated = 0
        truncated, blank = list[int](), list[int]()
        maps: list[HeatMap] = []
        try:
            for rows in chunks(
                rows_of(self.texts, (), self.file, count=1, columns=TextColumns.of_run(trained.config)), CHUNK
            ):
                texts = [text for (text,) in rows]
                blank += blank_rows(rows, count)
                kept, too_long = sources_of(processor, texts, max_length)
                truncated += [count + index for index in too_long]
                count, translated = count + len(texts), translated + len(kept)
                searched = search(trained, list(kept.values()), self.search, self.n_best)
                translations = dict(zip(kept, searched, strict=True))
                for index, text in enumerate(texts):
                    self._show(text, translations.get(index, [Hypothesis("", [], 0.0)]))
                    if self.alignment is not None and index in translations and len(maps) < MAX_ALIGNED:
                        best = translations[index][0].tokens
                        maps.append(alignment(translator, trained.params, processor, kept[index], best, title=text))
        except BaseException:
            if self.alignment is not None and maps:
                write_partial(self.alignment, render_page(maps).encode(), "texts")
            raise
        report_truncated(truncated, translated, max_length)
        report_blank(blank, count, self.texts, self.file)
        if self.alignment is not None:
            write_file(self.alignment, render_page(maps).encode())
            part = "" if translated <= len(maps) else f" of the first {len(maps)} of {translated:,} texts"
            print(f"attention{part} in {self.alignment}", file=sys.stderr)

    def _show(self, text: str, translations: Sequence[Hypothesis]) -> None:
        if self.json:
            rows = [{"text": translation.text, "score": round(translation.score, 4)} for translation in translations]
            print(json.dumps({"text": text, "translations": rows}, ensure_ascii=False))
            return
        for translation in translations:
            score = "" if self.n_best == 1 else f"{translation.score:.4f}\t"
            print(f"{score}{one_line(translation.text)}")
        print("\n" * (self.n_best - len(translations)), end="")


@one_or_many
def translate(
    trained: Trained,
    texts: Sequence[str],
    *,
    num_beams: int = 5,
    length_penalty: float = 0.6,
    coverage_penalty: float = 0.0,
    no_repeat_ngram: int = 0,
    length_offset: float = 5.0,
) -> list[str]:
    """The translation of each text, or of one; that of a blank text is blank.

    A warning in the log counts truncated texts.

    Args:
      texts: one text, or a list of N.
      num_beams: number of beams; 1 = greedy.
      length_penalty: larger values favour longer translations.
      coverage_penalty: larger values penalise unattended source tokens more.
      no_repeat_ngram: size of the n-grams that no translation may contain twice; 0 = no restriction.
      length_offset: of the length penalty: 5 in Wu et al. 2016, 0 in Transformers.

    Raises: ValueError for invalid options.
    """
    options = SearchOptions(num_beams, length_penalty, coverage_penalty, no_repeat_ngram, length_offset)
    processor: TranslationProcessor = trained.processor
    translations = [""] * len(require_texts(texts))
    kept, truncated = sources_of(processor, texts, max_source_length(trained))
    warn_of_truncated(truncated, len(kept), max_source_length(trained))
    for index, (best, *_) in zip(kept, search(trained, list(kept.values()), options), strict=True):
        translations[index] = best.text
    return translations


def warm_up(
    trained: Trained,
    *,
    num_beams: int = 5,
    length_penalty: float = 0.6,
    coverage_penalty: float = 0.0,
    no_repeat_ngram: int = 0,
    length_offset: float = 5.0,
) -> None:
    """Compiles the programs of `translate` ahead, with its arguments."""
    options = SearchOptions(num_beams, length_penalty, coverage_penalty, no_repeat_ngram, length_offset)
    batches.warm_up(decoding_shapes(max_source_length(trained)), _searcher(trained, (), options, 1))


def max_source_length(trained: Trained) -> int:
    """Maximum length of a source in tokens, with its end symbol."""
    model: Any = trained.model
    return model.config.max_length or DEFAULT_MAX_LENGTH


def sources_of(
    processor: TranslationProcessor, texts: Sequence[str], max_length: int
) -> tuple[dict[int, list[int]], list[int]]:
    """The tokens of each text that is not blank, by index, and the indices of truncated texts."""
    encoded = {n: processor.encode_source(text) for n, text in enumerate(texts) if not is_blank((text,))}
    too_long = [n for n, ids in encoded.items() if len(ids) > max_length]
    return encoded | {n: [*encoded[n][: max_length - 1], processor.source.end] for n in too_long}, too_long


def search(
    trained: Trained, sources: Sequence[Sequence[int]], options: SearchOptions, n_best: int = 1
) -> list[list[Hypothesis]]:
    """The n best translations of each source with distinct texts, best first; fewer if the beams have fewer."""
    lengths = list(map(len, sources))
    # Several beams can have the same text.
    compute = _searcher(trained, sources, options, 1 if n_best == 1 else options.num_beams)
    results = in_batches(lengths, decoding_shapes(max_source_length(trained)), compute)
    rows = (zip(tokens.tolist(), scores.tolist(), strict=True) for tokens, scores in results)
    return [distinct_texts(row, trained.processor.target.decode)[:n_best] for row in rows]


def _searcher(trained: Trained, sources: Sequence[Sequence[int]], options: SearchOptions, n_best: int) -> BatchFunction:
    """Tokens [B, n_best, T] and scores [B, n_best] of batches of sources."""

    def compute(indices: Sequence[int], shape: Shape) -> tuple[Any, Any]:
        # Padding repeats a source, since a search ends when all its rows end.
        rows = [sources[index] for index in indices] or [[trained.processor.source.end]]
        source = padded_sources([*rows, *rows[:1] * (shape.rows - len(rows))], shape.length, shape.length)
        return Translator.of(trained.model, trained.processor.symbols)(
            trained.inference_params, *source, options, n_best
        )

    return compute
