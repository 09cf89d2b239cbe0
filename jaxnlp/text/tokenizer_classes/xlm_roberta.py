"""XLM-RoBERTa's tokenizer: a SentencePiece unigram model whose first ids are fairseq's special tokens."""

import base64
from collections.abc import Mapping
from typing import Any

from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import Unigram

from jaxnlp.text.tokenizer_classes import TokenizerClass, with_id
from jaxnlp.text.tokenizer_classes.roberta import NAMED

UNKNOWN_ID = 3


def _charsmap(normalizer: Any) -> bytes | None:
    """The first charsmap of a normalizer in tokenizer.json."""
    parts = normalizer["normalizers"] if (normalizer or {}).get("type") == "Sequence" else [normalizer or {}]
    maps = [part["precompiled_charsmap"] for part in parts if part.get("type") == "Precompiled"]
    return base64.b64decode(maps[0]) if maps else None


def unigram(whole: Mapping[str, Any], unknown_id: int, *, prefix: bool = True) -> Tokenizer:
    """A SentencePiece unigram model, without added tokens and without a template.

    Args:
      whole: the content of tokenizer.json.
      unknown_id: of the unknown token.
      prefix: whether a text has a blank before its first word.
    """
    vocabulary = [(piece, float(score)) for piece, score in whole["model"]["vocab"]]
    tokenizer = Tokenizer(Unigram(vocabulary, unknown_id, byte_fallback=False))
    charsmap = _charsmap(whole.get("normalizer"))
    if charsmap is not None:
        tokenizer.normalizer = normalizers.Precompiled(charsmap)
    scheme = "always" if prefix else "never"
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme=scheme)]
    )
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return tokenizer


def _build(whole: Mapping[str, Any], named: Mapping[str, Any], settings: Mapping[str, Any]) -> Tokenizer:
    del named
    return unigram(whole, UNKNOWN_ID, prefix=settings.get("add_prefix_space", True))


def _finish(tokenizer: Tokenizer, named: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    del settings
    bos, eos = (str(named[name]) for name in ("bos_token", "eos_token"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[bos, "$A", eos],
        pair=[bos, "$A", eos, eos, "$B", eos],
        special_tokens=[with_id(tokenizer, token) for token in (bos, eos)],
    )


CLASS = TokenizerClass(
    names=("XLMRobertaTokenizer", "XLMRobertaTokenizerFast"),
    model_types=("xlm-roberta",),
    kind="Unigram",
    files=(),
    named=NAMED,
    segments=False,
    read=None,
    build=_build,
    finish=_finish,
)
