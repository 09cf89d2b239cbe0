"""Beam search for translations: its options, and the translator of a model."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxnlp.config import Config, Count, Natural, NonNegative
from jaxnlp.decoding.beam import beam_search, compile_beam_search
from jaxnlp.decoding.generation import SMALLEST_BUCKET, Decoder, target_decoder_of
from jaxnlp.decoding.rows import by_rows, mesh_of, rows_like, with_rows_for_all
from jaxnlp.ops.compiler_options import jit
from jaxnlp.text.padding import padded, row_mask
from jaxnlp.text.subwords import END, START
from jaxnlp.text.translation import Symbols
from jaxnlp.typing import Params, PyTree

BUCKET = 16
"""Texts are padded to a multiple of this length, to compile few programs."""


SYMBOLS = Symbols(START, END)
"""The symbols of the library's own vocabularies."""


def max_target_length(source_length: Any) -> Any:
    """Maximum number of tokens in the translation of a source of this many tokens, both with their end symbol."""
    return 2 * source_length + 10


@dataclasses.dataclass(frozen=True)
class SearchOptions(Config):
    """Options of the beam search."""

    num_beams: Count = 5
    """Number of beams; 1 = greedy."""
    length_penalty: NonNegative = 0.6
    """Larger values favour longer translations (alpha of Wu et al. 2016)."""
    coverage_penalty: NonNegative = 0.0
    """Larger values penalise unattended source tokens more (beta of Wu et al. 2016)."""
    no_repeat_ngram: Natural = 0
    """Size of the n-grams that no translation may contain twice; 0 = no restriction."""
    length_offset: NonNegative = 5.0
    """The length penalty divides by ((offset + length) / (offset + 1))^penalty: 5 in Wu et al. 2016, 0 in
    Transformers."""

    @property
    def search(self) -> "SearchOptions":
        """Only the options of the search, without a subclass's."""
        fields = dataclasses.fields(SearchOptions)
        return SearchOptions(**{field.name: getattr(self, field.name) for field in fields})


class Translator(NamedTuple):
    """Translates with a model.

    Attributes:
      decoder: the model's step function.
      initial_cache: (mesh, capacity, count_coverage, params, source, source_mask) -> the cache of a source.
      alignment: (params, source, inputs, source_mask) -> weights [B, T, S].
      symbols: of a target.
    """

    decoder: Decoder
    initial_cache: Any
    alignment: Any
    symbols: Symbols

    @classmethod
    @functools.lru_cache(maxsize=8)  # each new translator compiles its programs again
    def of(cls, model: Any, symbols: Symbols = SYMBOLS) -> "Translator":
        """The translator of a model whose config is a `SequenceToSequenceConfig`, the same one for equal models.

        Args:
          model: the module.
          symbols: `TranslationProcessor.symbols`.
        """

        def initial_cache(mesh: Any, capacity: int, count_coverage: bool, params: Params, *source: Any) -> PyTree:
            of_rows = functools.partial(model.initial_cache, capacity=capacity, count_coverage=count_coverage)
            return by_rows(mesh, of_rows, params, *source)

        cache = jit(initial_cache, static_argnums=(0, 1, 2))
        return cls(target_decoder_of(model), cache, jit(model.alignment), symbols)

    def longest_target(self, source_length: int) -> int:
        """Maximum number of tokens in the translation of a source of this many tokens, within the model's capacity."""
        longest, capacity = max_target_length(source_length), self.decoder.capacity
        return longest if capacity is None else min(longest, capacity)

    def compile_ahead(
        self, compile_ahead: Callable[..., Any], params: Params, source: Any, source_mask: Any, options: SearchOptions
    ) -> None:
        """Starts to compile the programs of the best translations of sources of these shapes.

        Args: compile_ahead: see `compile_beam_search`. Others: as for `__call__`.
        """
        longest, mesh = self.longest_target(source.shape[1]), mesh_of(params)
        source, source_mask = (with_rows_for_all(mesh, x) for x in (source, source_mask))
        capacity, count_coverage = max(longest, SMALLEST_BUCKET), options.coverage_penalty > 0
        cache = compile_ahead(self.initial_cache, mesh, capacity, count_coverage, params, source, source_mask)
        compile_beam_search(
            compile_ahead,
            self.decoder,
            params,
            len(source),
            num_beams=options.num_beams,
            max_new_tokens=longest,
            stop=self.symbols.end,
            coverage=count_coverage,
            no_repeat_ngram=options.no_repeat_ngram,
            n_best=1,
            constraints=self.symbols.constraints,
            cache=rows_like(mesh, cache),
        )

    def __call__(
        self, params: Params, source: Any, source_mask: Any, options: SearchOptions, n_best: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """The n_best translations of sources [B, S]: tokens [B, n_best, T], and their scores [B, n_best].

        The maximum length of a translation depends only on its own source, not on padding or other sources of the
        batch.
        """
        longest, mesh, rows = self.longest_target(source.shape[1]), mesh_of(params), len(source)
        source, source_mask = (with_rows_for_all(mesh, np.asarray(x)) for x in (source, source_mask))
        capacity = max(longest, SMALLEST_BUCKET)  # the start symbol is padded to a bucket
        result = beam_search(
            self.decoder,
            params,
            np.full((len(source), 1), self.symbols.start, np.int32),
            num_beams=options.num_beams,
            max_new_tokens=longest,
            stop=self.symbols.end,
            length_penalty=options.length_penalty,
            length_offset=options.length_offset,
            coverage_penalty=options.coverage_penalty,
            no_repeat_ngram=options.no_repeat_ngram,
            n_best=n_best,
            constraints=self.symbols.constraints,
            max_lengths=np.minimum(max_target_length(source_mask.sum(axis=1)), longest),
            cache=self.initial_cache(mesh, capacity, options.coverage_penalty > 0, params, source, source_mask),
        )
        return result.tokens[:rows], result.scores[:rows]


def padded_sources(
    rows: Sequence[Sequence[int]], max_length: int | None, multiple: int = BUCKET
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ids as [B, S] int32 and their mask [B, S]; S is a multiple of `multiple`, at most `max_length`."""
    length = -(-max(map(len, rows)) // multiple) * multiple
    length = length if max_length is None else min(max_length, length)
    mask = row_mask(rows, length=length)
    return padded(rows, mask), mask
