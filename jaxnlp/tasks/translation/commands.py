"""`jaxnlp translate`."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from jaxnlp.blocks import HeatMap
from jaxnlp.commands.files import chunks, one_line, report_truncated, rows_of
from jaxnlp.files import write_file
from jaxnlp.tasks import Command, Trained
from jaxnlp.tasks.translation.alignment_page import render_page
from jaxnlp.tasks.translation.evaluators import alignment
from jaxnlp.tasks.translation.search import SearchOptions, Translator, padded
from jaxnlp.text.subwords import END
from jaxnlp.text.translation import TranslationProcessor

TRANSLATED_TOGETHER = 32
"""Sentences that are translated in one batch."""
DEFAULT_LONGEST = 256
"""Tokens that are read of a source where the model itself has no limit."""
MOST_ALIGNED = 100
"""Translations whose attention a page shows."""


@dataclasses.dataclass(frozen=True)
class Translate(SearchOptions, Command):
    """Translates texts, one line for each; with --n-best several, behind their scores. An empty line stays empty."""

    texts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts; none = those of the file, or of standard input."""
    file: Path | None = None
    """A UTF-8 file with one text a line; - = standard input."""
    n_best: int = 1
    """Number of translations of each text, best first; at most num_beams."""
    alignment: Path | None = None
    """Also write a page that shows which source tokens each token of the best translation attends to."""

    def __post_init__(self):
        super().__post_init__()
        if not 1 <= self.n_best <= self.num_beams:
            raise ValueError(f"n_best must lie in 1 to num_beams, {self.num_beams}, got {self.n_best}")

    def __call__(self, trained: Trained) -> None:
        translator = Translator.of(trained.model)
        processor: TranslationProcessor = trained.processor
        model: Any = trained.model
        longest = model.config.max_length or DEFAULT_LONGEST
        truncated = count = 0
        maps: list[HeatMap] = []
        for rows in chunks(rows_of(self.texts, (), self.file, count=1, keep_blank=True), TRANSLATED_TOGETHER):
            texts = [text for (text,) in rows]
            encoded = {n: processor.encode_source(text) for n, text in enumerate(texts) if text.strip()}
            count += len(encoded)
            truncated += sum(len(ids) > longest for ids in encoded.values())
            kept = {n: ids if len(ids) <= longest else [*ids[: longest - 1], END] for n, ids in encoded.items()}
            translated = self._translated(translator, trained, list(kept.values()), longest)
            found = dict(zip(kept, translated, strict=True))
            for number, text in enumerate(texts):
                for ids, score in found.get(number, [([], 0.0)] * self.n_best):
                    line = one_line(processor.target.decode(ids))
                    print(line if self.n_best == 1 else f"{score:.4f}\t{line}")
                if self.alignment is not None and number in found and len(maps) < MOST_ALIGNED:
                    best = found[number][0][0]
                    maps.append(alignment(translator, trained.params, processor, kept[number], best, title=text))
        report_truncated(truncated, count, longest)
        if self.alignment is not None:
            write_file(self.alignment, render_page(maps).encode())
            print(f"attention in {self.alignment}", file=sys.stderr)

    def _translated(
        self, translator: Translator, trained: Trained, sources: Sequence[Sequence[int]], longest: int
    ) -> list[list[tuple[list[int], float]]]:
        """The n best translations of each source, with their scores."""
        if not sources:
            return []
        # A power of two of them, so that few programs are compiled.
        more = (1 << (len(sources) - 1).bit_length()) - len(sources)
        source = padded([*sources, *[sources[0]] * more], longest)
        tokens, scores = translator(trained.params, *source, self.search, self.n_best)
        return [
            list(zip(ids, values, strict=True))
            for ids, values in zip(np.asarray(tokens).tolist(), np.asarray(scores).tolist(), strict=True)
        ][: len(sources)]
