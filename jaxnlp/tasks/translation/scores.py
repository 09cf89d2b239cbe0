"""BLEU, chrF and exact matches of translations."""

import unicodedata
from collections.abc import Sequence
from typing import Literal

from jaxnlp.tasks import Metric

Tokenizer = Literal["13a", "zh", "intl", "char", "none"]
"""How sacrebleu tokenizes texts: 13a for languages that separate words by spaces, zh for Chinese."""


def corpus_scores(
    texts: Sequence[str], references: Sequence[str], tokenizer: str
) -> tuple[dict[str, Metric], dict[str, str]]:
    """BLEU and chrF out of 100, the fraction of exact matches, and sacrebleu's signatures of BLEU and chrF.

    Texts and references are compared in the normal form NFC, as trained subwords write it.

    Source: Papineni et al. 2002; Popovic 2015; Post 2018 for the signatures.
    """
    from sacrebleu.metrics import BLEU, CHRF  # imported here, so that training starts faster

    texts, references = ([unicodedata.normalize("NFC", text) for text in of] for of in (texts, references))
    metrics, signatures = {}, {}
    # Without `force` its log names an argument that jaxnlp does not have, where texts seem to be tokenized.
    for name, measure in (("bleu", BLEU(tokenize=tokenizer, force=True)), ("chrf", CHRF())):
        metrics[name] = Metric(measure.corpus_score(texts, [references]).score, len(texts))
        signatures[name] = str(measure.get_signature())
    exact = sum(text == reference for text, reference in zip(texts, references, strict=True))
    metrics["exact_match"] = Metric(exact / len(texts), len(texts))
    return metrics, signatures
