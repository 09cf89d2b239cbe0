"""BERT's tokenizer: WordPiece."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import WordPiece

from jaxnlp.text.tokenizer_classes import SpecialTokens, TokenizerClass, with_id

SPECIAL = SpecialTokens("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PIECES = "vocab.txt"
CASE = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")
"""Settings of case, accents and Chinese characters."""


def bert_tokenizer(
    ids: Mapping[str, int],
    special: SpecialTokens = SPECIAL,
    *,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    split_chinese: bool = True,
) -> Tokenizer:
    """BERT's tokenizer, without added tokens and without a template.

    Args:
      ids: the id of each token, special tokens included.
      lowercase: lowercase texts.
      strip_accents: remove accents; None = if texts are lowercased.
      split_chinese: every Chinese character is a word.

    Raises: ValueError when the unknown token is not among the tokens.
    """
    if special.unk not in ids:
        raise ValueError(f"the vocabulary needs the unknown token {special.unk}")
    tokenizer = Tokenizer(WordPiece(dict(ids), unk_token=special.unk))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=split_chinese, strip_accents=strip_accents, lowercase=lowercase
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def add_template(tokenizer: Tokenizer, special: SpecialTokens = SPECIAL) -> None:
    """Adds the template: [CLS] A [SEP], and [CLS] A [SEP] B [SEP] with segments 0 and 1."""
    tokenizer.post_processor = processors.BertProcessing(
        with_id(tokenizer, special.sep), with_id(tokenizer, special.cls)
    )


def ids_of(pieces: Sequence[str]) -> dict[str, int]:
    """The id of each token, its index. Raises: ValueError when tokens are not distinct."""
    ids = {piece: index for index, piece in enumerate(pieces)}
    if len(ids) != len(pieces):
        twice = next(piece for index, piece in enumerate(pieces) if ids[piece] != index)
        raise ValueError(f"the tokens of a vocabulary must be distinct, but {twice!r} occurs twice")
    return ids


def _read(folder: Path) -> dict[str, Any]:
    # Not splitlines(), which also splits at other characters; some of them are tokens.
    lines = (folder / PIECES).read_text(encoding="utf-8").removesuffix("\n").split("\n")
    return {"model": {"vocab": ids_of([line.rstrip("\r") for line in lines])}}


def _build(whole: Mapping[str, Any], named: Mapping[str, Any], settings: Mapping[str, Any]) -> Tokenizer:
    return bert_tokenizer(
        whole["model"]["vocab"],
        SpecialTokens.of(named),
        lowercase=settings.get("do_lower_case", True),
        strip_accents=settings.get("strip_accents"),
        split_chinese=settings.get("tokenize_chinese_chars", True),
    )


def _finish(tokenizer: Tokenizer, named: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    del settings
    add_template(tokenizer, SpecialTokens.of(named))


CLASS = TokenizerClass(
    names=("BertTokenizer", "BertTokenizerFast", "ElectraTokenizer", "ElectraTokenizerFast"),
    model_types=("bert", "distilbert", "electra"),
    kind="WordPiece",
    files=(PIECES,),
    named=SPECIAL.settings(),
    segments=True,
    read=_read,
    build=_build,
    finish=_finish,
)
