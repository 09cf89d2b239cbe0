"""CLIP's tokenizer: byte-level BPE of words in lower case, whose last token ends with `</w>`; no masked token."""

from collections.abc import Mapping
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE

from jaxnlp.text.bpe_merges import merges_of
from jaxnlp.text.tokenizer_classes import TokenizerClass, with_id
from jaxnlp.text.tokenizer_classes.roberta import CLASS as ROBERTA

START, END = "<|startoftext|>", "<|endoftext|>"
_SUFFIX = "</w>"
_WORDS = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


def _build(whole: Mapping[str, Any], named: Mapping[str, Any], settings: Mapping[str, Any]) -> Tokenizer:
    del settings
    tokenizer = Tokenizer(
        BPE(
            dict(whole["model"]["vocab"]),
            merges_of(whole["model"]),
            continuing_subword_prefix="",
            end_of_word_suffix=_SUFFIX,
            unk_token=str(named["unk_token"]),
        )
    )
    blanks = normalizers.Replace(Regex(r"\s+"), " ")
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), blanks, normalizers.Lowercase()])
    words = pre_tokenizers.Split(Regex(_WORDS), behavior="removed", invert=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    blank = rf"(?:{_SUFFIX}|[\s\x1c-\x1f])+"
    around = decoders.Replace(Regex(f"^{blank}|{blank}$"), "")
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), around, decoders.Replace(_SUFFIX, " ")])
    return tokenizer


def _finish(tokenizer: Tokenizer, named: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    del settings
    end, start = (with_id(tokenizer, str(named[f"{name}_token"])) for name in ("eos", "bos"))
    tokenizer.post_processor = processors.RobertaProcessing(end, start, trim_offsets=False, add_prefix_space=False)


CLASS = TokenizerClass(
    names=("CLIPTokenizer", "CLIPTokenizerFast"),
    model_types=("clip", "clip_text_model"),
    kind="BPE",
    files=ROBERTA.files,
    named={"bos_token": START, **dict.fromkeys(("eos_token", "unk_token", "pad_token"), END)},
    segments=False,
    read=ROBERTA.read,
    build=_build,
    finish=_finish,
    stand_ins={"cls_token": "bos_token", "sep_token": "eos_token", "mask_token": "eos_token"},
)
