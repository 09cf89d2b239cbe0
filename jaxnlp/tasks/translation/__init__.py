"""Translation: generate a text, given its source; scored by BLEU and chrF with beam search."""

import dataclasses
from collections.abc import Mapping

from jaxnlp.corpus import Split
from jaxnlp.tasks import Command, Evaluator, MetricKind
from jaxnlp.tasks.text_to_text import TextToText
from jaxnlp.tasks.translation.commands import Translate
from jaxnlp.tasks.translation.evaluators import Tokenizer, Translations, Validation
from jaxnlp.text.translation import TranslationProcessor


@dataclasses.dataclass(frozen=True)
class Translation(TextToText):
    """The cross-entropy of `TextToText`; validation also compares translations with their references."""

    label_smoothing: float = 0.1
    """Label smoothing: fraction of each target's probability that training spreads evenly over the vocabulary."""
    bleu_tokenizer: Tokenizer = "13a"
    """How BLEU tokenizes translations and references: 13a for languages that separate words by spaces, zh for
    Chinese."""

    def metrics(self, processor: TranslationProcessor, split: Split) -> Mapping[str, MetricKind]:
        found = {**super().metrics(processor, split)}
        if split.scored and len(split.examples):
            found |= {name: MetricKind("sentences", "points") for name in ("bleu", "chrf")}
            found["exact_match"] = MetricKind("sentences")
        return found

    def evaluators(self) -> Mapping[str, type[Evaluator]]:
        return {"validation": Validation, "translation": Translations}

    def commands(self) -> Mapping[str, type[Command]]:
        return {"translate": Translate}
