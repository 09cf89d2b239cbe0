"""Qwen's tokenizer: byte-level BPE of texts in NFC, with its own expression to split words."""

from collections.abc import Mapping
from typing import Any

from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

from jaxnlp.text.tokenizer_classes.gpt2 import CLASS as GPT2
from jaxnlp.text.tokenizer_classes.gpt2 import END

WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _build(whole: Mapping[str, Any], named: Mapping[str, Any], settings: Mapping[str, Any]) -> Tokenizer:
    tokenizer = GPT2.build(whole, named, settings)
    tokenizer.normalizer = normalizers.NFC()
    blanks = bool(settings.get("add_prefix_space", False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=blanks, use_regex=False),
        ]
    )
    return tokenizer


CLASS = GPT2._replace(
    names=("Qwen2Tokenizer", "Qwen2TokenizerFast"),
    model_types=("qwen2", "qwen3"),
    always=("qwen2",),
    named=dict.fromkeys(("unk_token", "eos_token", "pad_token"), END),
    build=_build,
)
