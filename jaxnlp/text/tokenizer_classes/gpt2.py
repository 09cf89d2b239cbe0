"""GPT-2's tokenizer: byte-level BPE, without tokens around a text."""

from collections.abc import Mapping
from typing import Any

from tokenizers import Tokenizer

from jaxnlp.text.tokenizer_classes.roberta import CLASS as ROBERTA

END = "<|endoftext|>"


def _finish(tokenizer: Tokenizer, named: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    del tokenizer, named, settings


CLASS = ROBERTA._replace(
    names=("GPT2Tokenizer", "GPT2TokenizerFast"),
    model_types=("gpt2",),
    named=dict.fromkeys(("unk_token", "bos_token", "eos_token"), END),
    finish=_finish,
)
