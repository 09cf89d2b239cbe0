"""T5's and mT5's tokenizer: a SentencePiece unigram model with an end token and sentinels."""

from collections.abc import Mapping
from typing import Any

from tokenizers import Tokenizer, processors

from jaxnlp.text.tokenizer_classes import TokenizerClass, with_id
from jaxnlp.text.tokenizer_classes.xlm_roberta import unigram

UNKNOWN_ID = 2
END = "</s>"
SENTINEL = "<extra_id_{}>"


def _sentinels(settings: Mapping[str, Any]) -> list[str]:
    """The sentinels, unless the files name the further special tokens."""
    count = settings.get("extra_ids", 100)
    if type(count) is not int or count < 0:
        raise ValueError(f"extra_ids must be a whole number, got {count!r}")
    listed = [str(token) for token in settings.get("additional_special_tokens") or ()]
    there = sum(SENTINEL.partition("{")[0] in token for token in listed)
    if there and count not in (0, there):
        raise ValueError(f"additional_special_tokens has {there} sentinels, but extra_ids is {count}")
    instead = isinstance(settings.get("extra_special_tokens"), list)
    return [] if there or instead else [SENTINEL.format(index) for index in range(count)]


def _build(whole: Mapping[str, Any], named: Mapping[str, Any], settings: Mapping[str, Any]) -> Tokenizer:
    del named, settings
    return unigram(whole, UNKNOWN_ID)


def _finish(tokenizer: Tokenizer, named: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    del settings
    _, end = with_id(tokenizer, str(named["eos_token"]))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=["$A", END], pair=["$A", END, "$B", END], special_tokens=[(END, end)]
    )


CLASS = TokenizerClass(
    names=("T5Tokenizer", "T5TokenizerFast"),
    model_types=("t5", "mt5"),
    kind="Unigram",
    files=(),
    named={"pad_token": "<pad>", "eos_token": END, "unk_token": "<unk>"},
    segments=False,
    read=None,
    build=_build,
    finish=_finish,
    extra=_sentinels,
)
