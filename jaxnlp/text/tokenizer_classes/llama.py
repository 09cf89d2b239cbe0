"""Llama's tokenizer: BPE of SentencePiece, with a token for each byte. The sign \u2581 is a blank."""

import json
from collections.abc import Mapping
from typing import Any

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from jaxnlp.text.bpe_merges import merges_of
from jaxnlp.text.tokenizer_classes import TokenizerClass

_BLANK = "\u2581"


def _build(whole: Mapping[str, Any], named: Mapping[str, Any], settings: Mapping[str, Any]) -> Tokenizer:
    del named
    model = whole["model"]
    tokenizer = Tokenizer(BPE(dict(model["vocab"]), merges_of(model), fuse_unk=True, byte_fallback=True))
    blanks = settings.get("add_prefix_space", True)
    scheme = ("always" if settings.get("legacy", False) else "first") if blanks else "never"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(_BLANK, scheme, split=False)
    steps = [decoders.Replace(_BLANK, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, *([decoders.Strip(" ", 1, 0)] if blanks else [])])
    return tokenizer


def _finish(tokenizer: Tokenizer, named: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    del tokenizer, named, settings


def _has_byte_level(whole: Mapping[str, Any]) -> bool:
    """Whether a tokenizer.json is byte-level BPE, as Llama 3's."""
    return '"ByteLevel"' in json.dumps([whole.get("pre_tokenizer"), whole.get("decoder")])


CLASS = TokenizerClass(
    names=("LlamaTokenizer", "LlamaTokenizerFast"),
    model_types=("llama", "mistral"),
    kind="BPE",
    files=(),
    named={"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"},
    segments=False,
    read=None,
    build=_build,
    finish=_finish,
    assumed=False,
    unchanged=_has_byte_level,
)
