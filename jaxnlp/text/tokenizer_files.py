"""The tokenizer files of a folder, read as Transformers' AutoTokenizer reads them for a BERT, and written for it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import WordPiece

from jaxnlp.text.foreign_settings import ForeignSettings, settings_in

PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL = (PAD, UNK, CLS, SEP, MASK)
WHOLE, PIECES, SETTINGS = "tokenizer.json", "vocab.txt", "tokenizer_config.json"
SPECIAL_MAP, ADDED = "special_tokens_map.json", "added_tokens.json"
FILES = (WHOLE, PIECES, SETTINGS, SPECIAL_MAP, ADDED)

_BERT = ("BertTokenizer", "BertTokenizerFast")
"""Classes that make a tokenizer of their own from the tokens and the settings of case."""
_AS_WRITTEN = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Classes that use tokenizer.json unchanged."""
_NAMED = dict(
    zip(("unk_token", "sep_token", "pad_token", "cls_token", "mask_token"), (UNK, SEP, PAD, CLS, MASK), strict=True)
)
_CASE = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")
_SEGMENTS = "token_type_ids"
_EXTRA = ("extra_special_tokens", "additional_special_tokens")

TOKENIZER_SETTINGS = ForeignSettings(
    applied=(
        *(*_CASE, *_EXTRA, *_NAMED),
        *("tokenizer_class", "added_tokens_decoder", "model_input_names", "model_max_length", "max_len"),
    ),
    supported={
        "truncation_side": ("right",),
        "padding_side": ("right",),
        "split_special_tokens": (False,),
        "init_inputs": ([],),
        "backend": ("tokenizers",),
        "auto_map": (None,),
        "clean_text": (True,),
        "do_basic_tokenize": (True,),
        "never_split": (None, []),
        "wordpieces_prefix": ("##",),
    },
    ignored={
        "where the files came from": (
            *("name_or_path", "_name_or_path", "special_tokens_map_file", "tokenizer_file", "vocab_file"),
            *(
                "slow_tokenizer_class",
                "processor_class",
                "is_local",
                "local_files_only",
                "files_loaded",
                "cache_dir",
                "_commit_hash",
            ),
            *("device_map", "from_slow", "use_fast", "trust_remote_code", "tokenizer_type", "transformers_version"),
        ),
        "chats": ("chat_template", "response_template", "response_schema", "chat_control_tokens"),
        "how ids become a text": (
            "clean_up_tokenization_spaces",
            "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
        ),
        "a BERT has [CLS] and [SEP] instead": ("add_bos_token", "add_eos_token", "add_prefix_space", "legacy"),
        "Transformers sets it in each call": (
            *("max_length", "stride", "truncation_strategy", "truncation", "padding", "pad_to_multiple_of"),
            *("add_special_tokens", "return_tensors", "verbose"),
        ),
        "padding is masked": ("pad_token_type_id",),
    },
)
"""tokenizer_config.json. Other names that end in _token are tokens, which are applied."""

TOKENIZER_PARTS = ForeignSettings(
    applied=("model", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "truncation", "padding"),
    supported={},
    ignored={"the format": ("version",), "how ids become a text": ("decoder",)},
)
"""tokenizer.json. Of truncation and padding Transformers reads only the sides; it sets the rest in each call."""


def bert_tokenizer(
    ids: Mapping[str, int], *, lowercase: bool = True, strip_accents: bool | None = None, split_chinese: bool = True
) -> Tokenizer:
    """BERT's tokenizer, without added tokens.

    Args:
      ids: the id of each token, special tokens included.
      lowercase, strip_accents, split_chinese: as for `WordPieceVocabulary.of_pieces`.
    """
    refuse_lacking(ids)
    tokenizer = Tokenizer(WordPiece(dict(ids), unk_token=UNK))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=split_chinese, strip_accents=strip_accents, lowercase=lowercase
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.BertProcessing((SEP, ids[SEP]), (CLS, ids[CLS]))
    return tokenizer


def read_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a folder, with its added tokens.

    BertTokenizer takes from tokenizer.json only the tokens; PreTrainedTokenizerFast takes all of it. The settings of
    case and accents of a BertTokenizer are those of tokenizer_config.json.

    Raises:
      FileNotFoundError: when the folder has neither tokenizer.json nor vocab.txt.
      ValueError: naming the file, for other classes, for settings that are not supported, and for files that are not a
        WordPiece tokenizer with BERT's special tokens.
    """
    settings, whole = settings_in(folder / SETTINGS), settings_in(folder / WHOLE)
    class_name = settings.get("tokenizer_class") or settings_in(folder / "config.json").get("tokenizer_class")
    class_name = class_name or _BERT[0]
    if class_name not in (*_BERT, *_AS_WRITTEN):
        expected = ", ".join((*_BERT, *_AS_WRITTEN))
        raise ValueError(
            f"{folder}: the tokenizer class {class_name} is not supported; expected {expected}. "
            f"If its tokens are a BERT's, set tokenizer_class to {_BERT[0]} in {SETTINGS} of a copy"
        )
    _check_settings(folder, settings, whole)
    file = next((folder / name for name in (WHOLE, PIECES) if (folder / name).is_file()), None)
    if file is None:
        raise FileNotFoundError(f"{folder} has neither {WHOLE} nor {PIECES}")
    if class_name in _AS_WRITTEN and file.name != WHOLE:
        raise ValueError(f"{folder}: the tokenizer class {class_name} needs {WHOLE}, not {PIECES}")
    # The library raises plain Exceptions for files that are not tokenizers.
    try:
        if file.name == PIECES:
            # Not splitlines(), which also splits at other characters; some of them are tokens.
            lines = file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
            tokenizer = bert_tokenizer(ids_of([line.rstrip("\r") for line in lines]), **_case(settings))
        else:
            tokenizer = Tokenizer.from_str(json.dumps(whole))
            refuse_other_models(tokenizer)
            tokenizer.no_truncation()
            tokenizer.no_padding()
            if class_name in _BERT:
                tokenizer = bert_tokenizer(whole["model"]["vocab"], **_case(settings))
        named, extra, numbered = _further_tokens(folder, settings, whole)
        if class_name in _BERT:
            named = _NAMED | named
        _refuse_other_names(_NAMED | named)
        _add_tokens(tokenizer, named, extra, numbered)
        _check_template(tokenizer)
        if _SEGMENTS not in settings.get("model_input_names", (_SEGMENTS,) if class_name in _BERT else ()):
            tokenizer.post_processor = _without_segments(tokenizer)
    except Exception as error:
        raise ValueError(f"{file} is not a WordPiece tokenizer: {error}") from error
    return tokenizer


def write_tokenizer(tokenizer: Tokenizer, folder: Path, *, max_length: int | None = None) -> None:
    """Writes the files that `read_tokenizer` and Transformers read as this tokenizer.

    Args:
      tokenizer: without truncation and padding.
      folder: an existing folder.
      max_length: maximum input length in tokens, to which Transformers then truncates; None = not known.
    """
    settings: dict[str, Any] = {} if max_length is None else {"model_max_length": max_length}
    if _is_bert(tokenizer):
        normalizer: Any = tokenizer.normalizer
        case = (normalizer.lowercase, normalizer.strip_accents, normalizer.handle_chinese_chars)
        settings |= {"tokenizer_class": _BERT[0], **dict(zip(_CASE, case, strict=True))}
        ids = tokenizer.get_vocab(with_added_tokens=False)
        pieces = "".join(f"{piece}\n" for piece in sorted(ids, key=ids.__getitem__))
        (folder / PIECES).write_text(pieces, encoding="utf-8")
    else:
        settings |= {"tokenizer_class": _AS_WRITTEN[0], "model_input_names": ["input_ids", _SEGMENTS, "attention_mask"]}
    (folder / WHOLE).write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    (folder / SETTINGS).write_text(json.dumps(settings | _NAMED, indent=2) + "\n", encoding="utf-8")


def ids_of(pieces: Sequence[str]) -> dict[str, int]:
    """The id of each token, which is its index. Raises: ValueError when tokens are not distinct."""
    ids = {piece: index for index, piece in enumerate(pieces)}
    if len(ids) != len(pieces):
        twice = next(piece for index, piece in enumerate(pieces) if ids[piece] != index)
        raise ValueError(f"the tokens of a vocabulary must be distinct, but {twice!r} occurs twice")
    return ids


def refuse_other_models(tokenizer: Tokenizer) -> None:
    """Raises: ValueError unless the tokenizer is a WordPiece."""
    kind = type(tokenizer.model).__name__
    if kind != "WordPiece":
        raise ValueError(f"expected a WordPiece tokenizer, as BERT has, got {kind}")


def refuse_lacking(pieces: Iterable[str]) -> None:
    """Raises: ValueError unless BERT's special tokens are among the tokens."""
    missing = [token for token in SPECIAL if token not in pieces]
    if missing:
        raise ValueError(f"a BERT vocabulary needs {', '.join(SPECIAL)}; missing: {', '.join(missing)}")


def _case(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "lowercase": settings.get("do_lower_case", True),
        "strip_accents": settings.get("strip_accents"),
        "split_chinese": settings.get("tokenize_chinese_chars", True),
    }


def _check_settings(folder: Path, settings: Mapping[str, Any], whole: Mapping[str, Any]) -> None:
    """Raises: ValueError for settings that change tokens and are not applied."""
    for name in _CASE:
        value = settings.get(name, True)
        if not isinstance(value, bool) and not (value is None and name == "strip_accents"):
            raise ValueError(f"{folder / SETTINGS}: {name} must be true or false, got {value!r}")
    TOKENIZER_PARTS.check(folder / WHOLE, whole)
    sides = {
        setting: str(whole[part]["direction"]).lower()
        for part, setting in (("truncation", "truncation_side"), ("padding", "padding_side"))
        if isinstance(whole.get(part), dict) and "direction" in whole[part]
    }
    sides = {side: value for side, value in sides.items() if side not in settings}
    for name, given in ((SETTINGS, settings), (SPECIAL_MAP, settings_in(folder / SPECIAL_MAP)), (WHOLE, sides)):
        TOKENIZER_SETTINGS.check(folder / name, {key: value for key, value in given.items() if not _is_token(key)})


def _is_token(name: str) -> bool:
    """Whether a setting names a token."""
    return name.endswith("_token")


def _further_tokens(
    folder: Path, settings: Mapping[str, Any], whole: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Any], dict[int, AddedToken]]:
    """The tokens with a name, such as mask_token; further special tokens; and added tokens by their ids.

    Older files are read only if tokenizer_config.json does not list the added tokens.
    """
    listed = settings.get("added_tokens_decoder")
    legacy = settings_in(folder / SPECIAL_MAP) if listed is None else {}
    named = {name: _token(value) for source in (settings, legacy) for name, value in source.items() if _is_token(name)}
    extra: Any = next(filter(None, map(settings.get, _EXTRA)), [])
    if isinstance(extra, dict):
        named |= {name: _token(value) for name, value in extra.items()}
        extra = []
    if not any(name in settings for name in _EXTRA):
        extra = next(filter(None, map(legacy.get, _EXTRA)), [])
    extra = [_token(value) for value in extra]
    numbered: dict[int, AddedToken] = {}
    if listed is not None:
        numbered = {int(token_id): AddedToken(**fields) for token_id, fields in listed.items()}
    else:
        special = {str(token) for token in (*named.values(), *extra)}
        for content, token_id in settings_in(folder / ADDED).items():
            numbered[token_id] = AddedToken(content, normalized=content not in special, special=content in special)
        for fields in whole.get("added_tokens", ()):
            numbered[fields["id"]] = AddedToken(**{name: value for name, value in fields.items() if name != "id"})
    by_content = {str(token): token for token in numbered.values()}
    return {name: by_content.get(str(token), token) for name, token in named.items()}, extra, numbered


def _token(value: Any) -> str | AddedToken | None:
    """A special token of the files: its text, or an object that also says how the text around it is treated."""
    if not isinstance(value, dict):
        return value
    return AddedToken(**{name: field for name, field in value.items() if name != "__type"} | {"special": True})


def _add_tokens(
    tokenizer: Tokenizer, named: Mapping[str, Any], extra: Sequence[Any], numbered: Mapping[int, AddedToken]
) -> None:
    """Adds the tokens in Transformers' order. Their ids are the next free ones, whatever the files say."""
    held = tokenizer.get_added_tokens_decoder().values()
    as_held = {repr(token) for token in held}
    tokens: list[Any] = [token for _, token in sorted(numbered.items()) if repr(token) not in as_held]
    contents = {token.content for token in held} | {token.content for token in tokens}
    first = ("bos_token", "eos_token", *_NAMED)
    in_order = [*(named.get(name) for name in first), *(named[name] for name in named if name not in first), *extra]
    for token in in_order:
        if token is not None and str(token) not in contents:
            contents.add(str(token))
            tokens.append(AddedToken(token, special=True) if isinstance(token, str) else token)
    special = {str(token) for token in named.values() if token is not None}
    for token in tokens:
        token.special = token.special or token.content in special
    tokenizer.add_tokens(tokens)


def _refuse_other_names(named: Mapping[str, Any]) -> None:
    wrong = [
        f"{name} {str(named[name])!r}, expected {token!r}"
        for name, token in _NAMED.items()
        if str(named[name]) != token
    ]
    if wrong:
        raise ValueError(f"its special tokens have other names than BERT's: {', '.join(wrong)}")


def _without_segments(tokenizer: Tokenizer) -> processors.TemplateProcessing:
    """The template of a model that does not get the segments of pairs: all are 0."""
    special = [(token, tokenizer.token_to_id(token)) for token in (CLS, SEP)]
    return processors.TemplateProcessing(
        single=f"{CLS} $A {SEP}", pair=f"{CLS} $A {SEP} $B:0 {SEP}:0", special_tokens=special
    )


def _check_template(tokenizer: Tokenizer) -> None:
    """Raises: ValueError unless texts are read as [CLS] A [SEP], and pairs as [CLS] A [SEP] B [SEP]."""
    (text,) = tokenizer.encode_batch([UNK], add_special_tokens=False)
    single, pair = tokenizer.encode(UNK), tokenizer.encode(UNK, UNK)
    first, last = [CLS, *text.tokens, SEP], [*text.tokens, SEP]
    if (
        single.tokens != first
        or pair.tokens != [*first, *last]
        or any(single.type_ids + pair.type_ids[: len(first)])
        or set(pair.type_ids[len(first) :]) not in ({0}, {1})
    ):
        raise ValueError(f"its post-processor must give [CLS] A [SEP] and [CLS] A [SEP] B [SEP], got {pair.tokens}")


def _is_bert(tokenizer: Tokenizer) -> bool:
    """Whether a BertTokenizer with the same tokens and settings of case is this tokenizer."""
    normalizer: Any = tokenizer.normalizer
    if not isinstance(normalizer, normalizers.BertNormalizer):
        return False
    ids = tokenizer.get_vocab(with_added_tokens=False)
    like = bert_tokenizer(
        ids,
        lowercase=normalizer.lowercase,
        strip_accents=normalizer.strip_accents,
        split_chinese=normalizer.handle_chinese_chars,
    )
    parts = [json.loads(each.to_str()) for each in (tokenizer, like)]
    same = all(parts[0][name] == parts[1][name] for name in ("model", "normalizer", "pre_tokenizer"))
    return same and max(tokenizer.encode(UNK, UNK).type_ids) == 1
