"""RoBERTa's tokenizer: byte-level BPE, in which a blank is part of the next word."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import BPE

from jaxnlp.input_files.json_objects import parse_json
from jaxnlp.text.bpe_merges import merges_of
from jaxnlp.text.tokenizer_classes import SpecialTokens, TokenizerClass, with_id

SPECIAL = SpecialTokens("<pad>", "<unk>", "<s>", "</s>", "<mask>")
VOCABULARY, MERGES = "vocab.json", "merges.txt"
NAMED = {"bos_token": "<s>", "eos_token": "</s>", **SPECIAL.settings()}


def _read(folder: Path) -> dict[str, Any]:
    lines = (folder / MERGES).read_text(encoding="utf-8").split("\n")
    merges = [line for line in lines if line and not line.startswith("#version")]
    return {"model": {"vocab": parse_json((folder / VOCABULARY).read_text(encoding="utf-8")), "merges": merges}}


def _build(whole: Mapping[str, Any], named: Mapping[str, Any], settings: Mapping[str, Any]) -> Tokenizer:
    del named
    tokenizer = Tokenizer(
        BPE(
            dict(whole["model"]["vocab"]),
            merges_of(whole["model"]),
            continuing_subword_prefix="",
            end_of_word_suffix="",
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=settings.get("add_prefix_space", False))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _finish(tokenizer: Tokenizer, named: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    special = SpecialTokens.of(named)
    tokenizer.post_processor = processors.RobertaProcessing(
        with_id(tokenizer, special.sep),
        with_id(tokenizer, special.cls),
        settings.get("trim_offsets", True),
        settings.get("add_prefix_space", False),
    )


CLASS = TokenizerClass(
    names=("RobertaTokenizer", "RobertaTokenizerFast"),
    model_types=("roberta",),
    kind="BPE",
    files=(VOCABULARY, MERGES),
    named=NAMED,
    segments=False,
    read=_read,
    build=_build,
    finish=_finish,
)
