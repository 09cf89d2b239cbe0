"""Translation: generate a text, given its source; scored by BLEU and chrF with beam search."""

import dataclasses
import logging
import re
from collections.abc import Mapping
from pathlib import Path

from jaxnlp.config import Rate
from jaxnlp.convert.encoder_decoders import families
from jaxnlp.convert.pretrained_encoder_decoder import read_encoder_decoder
from jaxnlp.corpus import Corpus, Split
from jaxnlp.models import ModelConfig
from jaxnlp.tasks import Method, MetricKind, Trained, pretrained_model
from jaxnlp.tasks.text_to_text import TextToText
from jaxnlp.tasks.translation.attention import TranslationAttention, attend
from jaxnlp.tasks.translation.commands import Translate, translate, warm_up
from jaxnlp.tasks.translation.evaluators import Translations, Validation
from jaxnlp.tasks.translation.scores import Tokenizer
from jaxnlp.text.translation import TranslationProcessor

_logger = logging.getLogger(__name__)
_WITHOUT_SPACES = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")  # kana and Chinese characters
_SEEN = 100


@dataclasses.dataclass(frozen=True)
class Translation(TextToText):
    """The cross-entropy of `TextToText`; validation also compares translations with their references."""

    model_types = tuple(families())
    evaluators = {"validation": Validation, "translation": Translations}
    commands = {"translate": Translate, "attention": TranslationAttention, **TextToText.commands}
    methods = {"translate": Method(translate, warm_up), "attend": Method(attend)}

    label_smoothing: Rate = 0.1
    """Label smoothing: fraction of each target's probability that training spreads evenly over the vocabulary."""
    bleu_tokenizer: Tokenizer = "13a"
    """How BLEU tokenizes translations and references: 13a for languages that separate words by spaces, zh for Chinese,
    char for other languages without spaces."""

    def metrics(self, processor: TranslationProcessor, split: Split) -> Mapping[str, MetricKind]:
        metrics = {**super().metrics(processor, split)}
        if split.scored and len(split.examples):
            titles = {"bleu": "BLEU", "chrf": "chrF"}
            metrics |= {name: MetricKind("sentences", "points", title=title) for name, title in titles.items()}
            metrics["exact_match"] = MetricKind("sentences")
        return metrics

    def check_corpus(self, model: ModelConfig, corpus: Corpus) -> None:
        """Also warns when BLEU would treat whole sentences without spaces as words."""
        super().check_corpus(model, corpus)
        examples = corpus.splits["validation"].examples[:_SEEN] if "validation" in corpus.splits else []
        count = sum(bool(_WITHOUT_SPACES.search(str(example.reference))) for example in examples)
        if self.bleu_tokenizer == "13a" and 2 * count > len(examples):
            _logger.warning(
                "most translations are Chinese or Japanese, whose words BLEU's tokenizer 13a does not separate; set "
                "--task.bleu-tokenizer zh, or char"
            )

    @classmethod
    def from_pretrained(cls, path: str | Path, *, ignore: tuple[str, ...] = ()) -> Trained:
        """An encoder-decoder of Transformers. Raises: PretrainedError, WeightsError as `read_encoder_decoder`."""
        config, params, vocabulary = read_encoder_decoder(path, ignore=ignore)
        processor = TranslationProcessor(vocabulary.of_sources(), vocabulary)
        return pretrained_model(cls(), config, params, processor, str(path))
