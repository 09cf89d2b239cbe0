"""Translations of a split: scores, and examples for the report."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxnlp.config import Count
from jaxnlp.pages.content import HeatMap, Table
from jaxnlp.tasks import Evaluation, Evaluator, Scoring, Section
from jaxnlp.tasks.language_model.evaluators import perplexity
from jaxnlp.tasks.translation.scores import corpus_scores
from jaxnlp.tasks.translation.search import BUCKET, SearchOptions, Translator, padded_sources
from jaxnlp.text.raw_texts import one_line
from jaxnlp.text.translation import SentencePair, TranslationProcessor

MAX_EXAMPLES = 20
"""Number of translations in the report."""
ALIGNED_EXAMPLES = 2
"""Number of translations whose attention the report shows."""
LENGTH_GROUPS = 5
"""Number of groups of sentences by length; the report shows the BLEU of each."""


@dataclasses.dataclass(frozen=True)
class Translations(SearchOptions, Evaluator):
    """The same metrics as `Validation`, with beam search."""

    def compile_ahead(self, scoring: Scoring) -> None:
        super().compile_ahead(scoring)
        translator, params = _translator(scoring), scoring.whole_params()
        for batch in scoring.split.shapes:
            translator.compile_ahead(scoring.compile, params, batch["source"], batch["source_mask"], self.search)
        (read, mask), (inputs, _) = (
            padded_sources([[translator.symbols.end]], translator.decoder.capacity, length)
            for length in _aligned_lengths(scoring, translator)
        )
        scoring.compile(translator.alignment, params, read, inputs, mask)

    def __call__(self, scoring: Scoring) -> Evaluation:
        translator = _translator(scoring)
        params, split = scoring.whole_params(), scoring.split
        processor: TranslationProcessor = scoring.trained.processor
        pairs: list[tuple[list[int], list[int]]] = []  # each source as read, and its translation
        for batch in split.batches:
            tokens, _ = translator(params, batch["source"], batch["source_mask"], self.search)
            written = np.asarray(tokens)[:, 0]
            for row in np.flatnonzero(np.asarray(batch["loss_mask"]).any(axis=1)):
                read = np.asarray(batch["source"][row])[np.asarray(batch["source_mask"][row])]
                pairs.append((read.tolist(), written[row].tolist()))
        rows = range(len(pairs)) if split.rows is None else split.rows.tolist()
        ordered = [ids for _, ids in sorted(zip(rows, pairs, strict=True))]
        texts = [processor.target.decode(ids) for _, ids in ordered]
        predictions = {"translations.txt": "".join(f"{one_line(text)}\n" for text in split.in_rows(texts, ""))}
        if not split.scored:
            return Evaluation({}, predictions)
        metrics = scoring.sums()
        metrics["perplexity"] = perplexity(metrics["loss"])
        references = [str(example.reference) for example in split.examples]
        task: Any = scoring.trained.task
        tokenizer = task.bleu_tokenizer
        scores, signatures = corpus_scores(texts, references, tokenizer)
        sections = example_sections(split.examples, texts)
        sections.append(bleu_by_length(split.examples, texts, processor, tokenizer))
        lengths = _aligned_lengths(scoring, translator)
        for index in np.linspace(0, len(texts) - 1, min(ALIGNED_EXAMPLES, len(texts))).astype(int).tolist():
            title = split.examples[index].source
            content = alignment(translator, params, processor, *ordered[index], title=title, lengths=lengths)
            sections.append(Section("Attention", content))
        remarks = {"signatures": signatures} | dataclasses.asdict(self.search)
        return Evaluation(metrics | scores, predictions, sections, remarks)


@dataclasses.dataclass(frozen=True)
class Validation(Translations):
    """Loss, perplexity, and BLEU, chrF and exact matches of greedy translations."""

    num_beams: Count = 1


def _translator(scoring: Scoring) -> Translator:
    return scoring.once(Translator.of, scoring.trained.model, scoring.trained.processor.symbols)


def _aligned_lengths(scoring: Scoring, translator: Translator) -> tuple[int, int]:
    """The lengths to which sources and translations are padded for their attention: those of the whole split fit."""
    source = max(batch["source"].shape[1] for batch in scoring.split.shapes)
    return source, translator.longest_target(source)


def example_sections(examples: Sequence[SentencePair], texts: Sequence[str]) -> list[Section]:
    """A table for the report: some translations next to their references."""
    indices = np.linspace(0, len(texts) - 1, min(MAX_EXAMPLES, len(texts))).astype(int).tolist()
    rows = tuple((examples[n].source, texts[n], str(examples[n].reference)) for n in indices)
    return [Section("Translations", Table(("source", "translation", "reference"), rows, folded=True))]


def bleu_by_length(
    examples: Sequence[SentencePair], texts: Sequence[str], processor: TranslationProcessor, tokenizer: str
) -> Section:
    """A table for the report: BLEU by source length, in groups of equal size."""
    lengths = np.array([len(processor.encode_source(example.source)) - 1 for example in examples])
    rows = []
    for group in np.array_split(np.argsort(lengths, kind="stable"), min(LENGTH_GROUPS, len(lengths))):
        references = [str(examples[index].reference) for index in group]
        scores, _ = corpus_scores([texts[index] for index in group], references, tokenizer)
        rows.append((f"{lengths[group].min()} to {lengths[group].max()}", len(group), scores["bleu"].value))
    note = "Sentences are sorted by source length and divided into groups of equal size."
    return Section("BLEU by length", Table(("tokens in the source", "sentences", "BLEU"), tuple(rows), note=note))


def alignment(
    translator: Translator,
    params: Any,
    processor: TranslationProcessor,
    read: Sequence[int],
    ids: Sequence[int],
    *,
    title: str,
    lengths: tuple[int, int] = (BUCKET, BUCKET),
) -> HeatMap:
    """The attention weights of each token of a translation on the source tokens.

    Args:
      translator, params, processor: of the model.
      read: token ids of the source, end symbol included.
      ids: token ids of the translation; those after the first end symbol are ignored.
      title: of the heat map.
      lengths: source and translation are padded to multiples of these, to compile few programs.
    """
    end = translator.symbols.end
    written = list(ids[: ids.index(end) + 1 if end in ids else len(ids)])
    max_length = translator.decoder.capacity
    source, mask = padded_sources([read], max_length, lengths[0])
    inputs, _ = padded_sources([[translator.symbols.start, *written[:-1]]], max_length, lengths[1])
    weights = np.asarray(translator.alignment(params, source, inputs, mask))[0, : len(written), : len(read)]
    return HeatMap(
        rows=tuple(processor.target.tokens(written)),
        columns=tuple(processor.source.tokens(read)),
        weights=tuple(tuple(float(weight) for weight in row) for row in weights),
        title=title,
        note="Rows are tokens of the translation, columns tokens of the source. The stronger the colour, the larger "
        "the attention weight, relative to the largest weight of the row.",
    )
