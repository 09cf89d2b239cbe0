"""Translation: write a text, given another; scored by BLEU and chrF of the translations that beam search finds."""

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
    """The cross-entropy of `TextToText`; validation translates, and compares with the references."""

    label_smoothing: float = 0.1
    """Share of each target's probability that is spread evenly over the vocabulary in training."""
    bleu_tokenizer: Tokenizer = "13a"
    """How BLEU cuts translations and references into words: 13a for languages with blanks, zh for Chinese."""

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
