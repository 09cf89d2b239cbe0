"""Translation: write a text, given another; scored by BLEU and chrF of the translations that beam search finds."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import tyro

from jaxnlp.blocks import Table
from jaxnlp.commands.files import chunks, one_line, report_truncated, rows_of
from jaxnlp.corpus import Corpus, DataFacts, Split
from jaxnlp.decoding.beam import beam_search
from jaxnlp.decoding.generate import Decoder, target_decoder_of
from jaxnlp.models import ModelConfig
from jaxnlp.ops.losses import linear_cross_entropy
from jaxnlp.tasks import Block, Command, Evaluation, Evaluator, Metric, MetricKind, Objective, Scoring, Task, Trained
from jaxnlp.text.subwords import END, START
from jaxnlp.text.translation import SentencePair, TranslationProcessor
from jaxnlp.typing import Array, Batch, Metrics, Params, PRNGKey, PyTree

Tokenizer = Literal["13a", "zh", "ja-mecab", "intl", "char", "none"]
"""How sacrebleu cuts texts into words: 13a for languages with blanks, zh for Chinese."""
MAX_EXAMPLES = 20
"""Translations that the report shows."""
TRANSLATED_TOGETHER = 32
"""Sentences that `jaxnlp translate` translates in one batch."""
SOURCE_BUCKET = 16
"""Sources are padded to a multiple of this length, so that few programs are compiled."""


@dataclasses.dataclass(frozen=True)
class Translation(Task):
    """Mean cross-entropy of each target token given the source and the tokens before it, in nats per token.

    Batches hold `source` [B, S] int and `source_mask` [B, S] bool; `inputs` and `targets` [B, T] int, the target behind
    a start symbol and before an end symbol; `loss_mask` [B, T] bool: the mean is over True.
    """

    label_smoothing: float = 0.1
    """Share of each target's probability that is spread evenly over the vocabulary in training."""
    bleu_tokenizer: Tokenizer = "13a"
    """How BLEU cuts translations and references into words: 13a for languages with blanks, zh for Chinese."""

    def __post_init__(self):
        super().__post_init__()
        if not 0.0 <= self.label_smoothing < 1.0:
            raise ValueError(f"task.label_smoothing must lie in [0, 1), got {self.label_smoothing}")

    def metrics(self, processor: TranslationProcessor, split: Split) -> Mapping[str, MetricKind]:
        loss = MetricKind("tokens", "nats", "lower")
        found = {"loss": loss, "perplexity": MetricKind("tokens", "", "lower")}
        if self.label_smoothing:
            found["objective"] = loss
        if split.scored and len(split.examples):
            found |= {name: MetricKind("sentences", unit) for name, unit in (("bleu", "points"), ("chrf", "points"))}
            found["exact_match"] = MetricKind("sentences")
        return found

    def check(self, model: ModelConfig, data: DataFacts) -> None:
        if not model.reads_source:
            raise ValueError(
                f"translation needs a model that reads a source, got {type(model).__name__}; take EncoderDecoderConfig"
            )

    def build(
        self, model: ModelConfig, processor: TranslationProcessor
    ) -> tuple[nn.Module, tuple[jax.ShapeDtypeStruct, ...]]:
        build: Any = model.build
        tokens = jax.ShapeDtypeStruct((1, 1), jnp.int32)
        return build(processor.target.size, processor.source.size), (tokens, tokens)

    def objective(self, model: Any, corpus: Corpus | None) -> Objective:
        def loss(params: Params, batch: Batch, key: PRNGKey | None, carry: PyTree):
            hidden = model.apply(
                {"params": params},
                batch["source"],
                batch["inputs"],
                batch["source_mask"],
                deterministic=key is None,
                return_hidden=True,
                rngs=None if key is None else {"dropout": key},
            )
            w, b = model.output_layer(params)
            found = linear_cross_entropy(
                hidden.reshape(-1, hidden.shape[-1]),
                w,
                b,
                batch["targets"].reshape(-1),
                batch["loss_mask"].reshape(-1),
                label_smoothing=0.0 if key is None else self.label_smoothing,
                matmul_dtype=model.config.compute.operand_dtype,
            )
            metrics: Metrics = {"loss": (found.nll, found.count)}
            if key is not None and self.label_smoothing:
                metrics["objective"] = (found.objective, found.count)
            return found.objective / jnp.maximum(found.count, 1.0), (metrics, carry)

        return Objective(loss)

    def evaluators(self) -> Mapping[str, type[Evaluator]]:
        return {"validation": Validation, "translation": Translations}

    def commands(self) -> Mapping[str, type[Command]]:
        return {"translate": Translate}


@dataclasses.dataclass(frozen=True)
class Search(Evaluator):
    """How translations are searched for; the base of both evaluators."""

    num_beams: int = 1
    """Number of beams; 1 = greedy."""
    length_penalty: float = 0.6
    """The greater, the longer are the translations that win (alpha of Wu et al. 2016)."""

    def __post_init__(self):
        super().__post_init__()
        if self.num_beams < 1:
            raise ValueError(f"num_beams must be at least 1, got {self.num_beams}")
        if not 0.0 <= self.length_penalty < float("inf"):
            raise ValueError(f"length_penalty must be finite and not negative, got {self.length_penalty}")

    def __call__(self, scoring: Scoring) -> Evaluation:
        translator = scoring.once("translator", lambda: Translator.of(scoring.trained.model))
        params, split = scoring.params_here(), scoring.split
        processor: TranslationProcessor = scoring.trained.processor
        found: list[str] = []
        for batch in split.batches:
            real = np.asarray(batch["loss_mask"]).any(axis=1)
            tokens = translator(params, batch["source"], batch["source_mask"], self.num_beams, self.length_penalty)[0]
            found += [processor.target.decode(row) for row in np.asarray(tokens)[real, 0].tolist()]
        rows = range(len(found)) if split.rows is None else split.rows.tolist()
        texts = [text for _, text in sorted(zip(rows, found, strict=True))]
        predictions = {"translations.txt": "".join(f"{one_line(text)}\n" for text in texts)}
        if not split.scored:
            return Evaluation({}, predictions)
        metrics = scoring.sums()
        loss = metrics["loss"]
        metrics["perplexity"] = Metric(float(np.exp(min(loss.value, 700.0))), loss.count)
        references = [str(example.reference) for example in split.examples]
        tokenizer = getattr(scoring.trained.task, "bleu_tokenizer", "13a")
        scores, signatures = corpus_scores(texts, references, tokenizer)
        remarks = {"signatures": signatures, "num_beams": self.num_beams, "length_penalty": self.length_penalty}
        return Evaluation(metrics | scores, predictions, example_blocks(split.examples, texts), remarks)


@dataclasses.dataclass(frozen=True)
class Validation(Search):
    """Loss, and BLEU, chrF and exact matches of the greedy translations."""


@dataclasses.dataclass(frozen=True)
class Translations(Search):
    """The same of the translations that beam search finds."""

    num_beams: int = 5


class Translator(NamedTuple):
    """A model's search for translations; made once, since each one compiles its programs again.

    Attributes:
      decoder: the model's step function.
      begin: (params, source, source_mask) -> the cache that holds a source.
    """

    decoder: Decoder
    begin: Any

    @classmethod
    def of(cls, model: Any) -> "Translator":
        """That of a model whose config says `reads_source`."""
        return cls(target_decoder_of(model), jax.jit(model.begin))

    def __call__(
        self, params: Params, source: Any, source_mask: Any, num_beams: int, length_penalty: float
    ) -> tuple[Array, Array]:
        """The best translations of sources [B, S]: tokens [B, N, T], and their scores [B, N].

        A translation has at most twice as many tokens as its source's row, and ten more.
        """
        longest = 2 * source.shape[1] + 10
        capacity = self.decoder.capacity
        result = beam_search(
            self.decoder,
            params,
            np.full((len(source), 1), START, np.int32),
            num_beams=num_beams,
            max_new_tokens=longest if capacity is None else min(longest, capacity),
            stop=END,
            length_penalty=length_penalty,
            cache=self.begin(params, source, source_mask),
        )
        return result.tokens, result.scores


def corpus_scores(
    texts: Sequence[str], references: Sequence[str], tokenizer: str
) -> tuple[dict[str, Metric], dict[str, str]]:
    """BLEU and chrF out of 100, the share of exact matches; and sacrebleu's signatures of the first two.

    Source: Papineni et al. 2002; Popovic 2015; Post 2018 for what a signature says.
    """
    from sacrebleu.metrics import BLEU, CHRF  # here: training starts without it

    found, signatures = {}, {}
    for name, measure in (("bleu", BLEU(tokenize=tokenizer)), ("chrf", CHRF())):
        found[name] = Metric(measure.corpus_score(list(texts), [list(references)]).score, len(texts))
        signatures[name] = str(measure.get_signature())
    exact = sum(text == reference for text, reference in zip(texts, references, strict=True))
    found["exact_match"] = Metric(exact / len(texts), len(texts))
    return found, signatures


def example_blocks(examples: Sequence[SentencePair], texts: Sequence[str]) -> list[Block]:
    """For the report: some translations beside their references."""
    places = np.linspace(0, len(texts) - 1, min(MAX_EXAMPLES, len(texts))).astype(int).tolist()
    rows = tuple((examples[n].source, texts[n], str(examples[n].reference)) for n in places)
    return [Block("Translations", Table(("source", "translation", "reference"), rows, folded=True))]


@dataclasses.dataclass(frozen=True)
class Translate(Command):
    """Translates texts, one line for each; with --n-best several, behind their scores."""

    texts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts; none = those of the file, or of standard input."""
    file: Path | None = None
    """A UTF-8 file with one text a line; - = standard input."""
    num_beams: int = 5
    """Number of beams; 1 = greedy."""
    length_penalty: float = 0.6
    """The greater, the longer are the translations that win."""
    n_best: int = 1
    """Number of translations of each text, best first; at most num_beams."""

    def __post_init__(self):
        super().__post_init__()
        if not 1 <= self.n_best <= self.num_beams:
            raise ValueError(f"n_best must lie in 1 to num_beams, {self.num_beams}, got {self.n_best}")

    def __call__(self, trained: Trained) -> None:
        translator = Translator.of(trained.model)
        processor: TranslationProcessor = trained.processor
        model: Any = trained.model
        longest = model.config.max_length
        truncated = count = 0
        for texts in chunks(rows_of(self.texts, (), self.file, count=1), TRANSLATED_TOGETHER):
            encoded = [processor.encode_source(text) for (text,) in texts]
            count += len(encoded)
            truncated += sum(len(ids) > longest for ids in encoded)
            kept = [ids if len(ids) <= longest else [*ids[: longest - 1], END] for ids in encoded]
            source, mask = padded(kept, longest)
            tokens, scores = translator(trained.params, source, mask, self.num_beams, self.length_penalty)
            for row, values in zip(np.asarray(tokens).tolist(), np.asarray(scores).tolist(), strict=True):
                for ids, value in list(zip(row, values, strict=True))[: self.n_best]:
                    text = one_line(processor.target.decode(ids))
                    print(text if self.n_best == 1 else f"{value:.4f}\t{text}")
        report_truncated(truncated, count, longest)


def padded(rows: Sequence[Sequence[int]], longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of ids as [B, S] int32, S a multiple of `SOURCE_BUCKET` or the longest there may be, and the mask [B, S]."""
    length = min(longest, -(-max(map(len, rows)) // SOURCE_BUCKET) * SOURCE_BUCKET)
    ids = np.zeros((len(rows), length), np.int32)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
    return ids, np.arange(length)[None] < np.array([len(row) for row in rows])[:, None]
