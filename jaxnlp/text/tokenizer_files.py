"""The tokenizer files of a folder, read as Transformers' AutoTokenizer reads them, and written for it."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tokenizers import AddedToken, Tokenizer, normalizers, processors
from tokenizers.models import Unigram

from jaxnlp.text.bpe_merges import merges_of
from jaxnlp.text.foreign_settings import ForeignSettings, settings_in
from jaxnlp.text.normalization import check_charsmaps
from jaxnlp.text.tokenizer_classes import SpecialTokens, TokenizerClass, classes, clean_up_texts, with_id
from jaxnlp.text.tokenizer_classes.bert import CASE, PIECES, bert_tokenizer
from jaxnlp.text.tokenizer_classes.bert import CLASS as BERT

T = TypeVar("T")
WHOLE, SETTINGS = "tokenizer.json", "tokenizer_config.json"
SPECIAL_MAP, ADDED = "special_tokens_map.json", "added_tokens.json"
FILES = (WHOLE, SETTINGS, SPECIAL_MAP, ADDED, *(name for one in classes() for name in one.files))

AS_WRITTEN = ("PreTrainedTokenizerFast", "TokenizersBackend", "MT5Tokenizer", "MT5TokenizerFast")
"""Classes that use tokenizer.json unchanged, and former ones, for which Transformers does so."""
_ORDER = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""The order in which Transformers adds special tokens."""
TEXT_TO_TEXT_TOKENS = ("pad_token", "eos_token", "unk_token")
"""The special tokens that a text-to-text model needs."""
_SEGMENTS = "token_type_ids"
_EXTRA = ("extra_special_tokens", "additional_special_tokens")

TOKENIZER_SETTINGS = ForeignSettings(
    applied=(
        *(*CASE, *_EXTRA, *_ORDER, "add_prefix_space", "trim_offsets"),
        *("tokenizer_class", "added_tokens_decoder", "model_input_names", "model_max_length", "max_len"),
        *("extra_ids", "legacy", "clean_up_tokenization_spaces"),
    ),
    supported={
        "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": (False,),
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
            *("merges_file", "slow_tokenizer_class", "processor_class", "is_local", "local_files_only"),
            *("files_loaded", "cache_dir", "_commit_hash"),
            *("device_map", "from_slow", "use_fast", "trust_remote_code", "tokenizer_type", "transformers_version"),
        ),
        "chats": (
            *("use_default_system_prompt", "chat_template", "response_template", "response_schema"),
            "chat_control_tokens",
        ),
        "how ids become a text": ("errors",),
        "the start and the separator are in the template": ("add_bos_token", "add_eos_token"),
        "tokenizer.json has the model": ("sp_model_kwargs", "unk_id", "vocab_size"),
        "Transformers sets it in each call": (
            *("max_length", "stride", "truncation_strategy", "truncation", "padding", "pad_to_multiple_of"),
            *("add_special_tokens", "return_tensors", "verbose"),
        ),
        "padding is masked": ("pad_token_type_id",),
    },
)
"""tokenizer_config.json. Other names that end in _token are tokens, which are applied. As in Transformers, a class
ignores settings that it does not have, such as case."""

TOKENIZER_PARTS = ForeignSettings(
    applied=("model", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "truncation", "padding"),
    supported={},
    ignored={"the format": ("version",), "how ids become a text": ("decoder",)},
)
"""tokenizer.json. Of truncation and padding Transformers reads only the sides; it sets the rest in each call."""


def read_tokenizer(folder: Path) -> tuple[Tokenizer, SpecialTokens]:
    """The tokenizer of an encoder's folder, with its added tokens, and the names of its special tokens.

    BertTokenizer and other classes read only the tokens from tokenizer.json, and settings such as case from
    tokenizer_config.json; PreTrainedTokenizerFast reads all of tokenizer.json.

    Raises:
      FileNotFoundError: when the folder has no tokenizer.
      ValueError: naming the file, for other classes, unsupported settings, and files that are not such a tokenizer.
    """

    def finish(read: _Read) -> tuple[Tokenizer, SpecialTokens]:
        special = SpecialTokens.of(read.named)
        _check_template(read.tokenizer, special)
        if _SEGMENTS not in read.settings.get("model_input_names", (_SEGMENTS,) if read.segments else ()):
            remove_segments(read.tokenizer, special)
        return read.tokenizer, special

    return _read_tokenizer(folder, {}, finish)


def read_decoder_tokenizer(folder: Path) -> tuple[Tokenizer, dict[str, str], bool]:
    """The tokenizer of a decoder's folder, as `read_tokenizer`; its special tokens by setting; and whether its texts
    start with `bos_token`.

    As in Transformers, tokenizer.json says so; without it, `add_bos_token`.

    Raises: FileNotFoundError, ValueError as `read_tokenizer`; also for other tokens around a text.
    """

    def finish(read: _Read) -> tuple[Tokenizer, dict[str, str], bool]:
        tokenizer, settings = read.tokenizer, read.settings
        named = {name: str(token) for name, token in read.named.items() if token is not None}
        named = {name: token for name, token in named.items() if tokenizer.token_to_id(token) is not None}
        around = [f"{named.get(name)}" for name in ("bos_token", "eos_token") if settings.get(f"add_{name}")]
        if read.whole.get("post_processor"):
            tokenizer.post_processor = Tokenizer.from_str(json.dumps(read.whole)).post_processor
        elif read.whole.keys() == {"model"} and around:
            special = [with_id(tokenizer, token) for token in around]
            tokenizer.post_processor = processors.TemplateProcessing(f"{' '.join(around)} $A", special_tokens=special)
        added, plain = (tokenizer.encode("a", add_special_tokens=special).tokens for special in (True, False))
        start = [named["bos_token"]] if "bos_token" in named else []
        if added not in (plain, [*start, *plain]):
            raise ValueError(f"no token may be added to a text, except bos_token at its start, got {added} for 'a'")
        return tokenizer, named, added != plain

    return _read_tokenizer(folder, dict.fromkeys(("truncation_side", "padding_side"), ("right", "left")), finish)


def read_text_to_text_tokenizer(folder: Path) -> tuple[Tokenizer, dict[str, str]]:
    """The tokenizer of a text-to-text model's folder, as `read_tokenizer`, and its special tokens by setting.

    `pad_token`, `eos_token` and `unk_token` are required. The template adds `eos_token` at the end of a text, and may
    add `bos_token` at its start.

    Raises: FileNotFoundError, ValueError as `read_tokenizer`; also for another template.
    """

    def finish(read: _Read) -> tuple[Tokenizer, dict[str, str]]:
        named = {name: str(token) for name in _ORDER if (token := read.named.get(name)) is not None}
        named = {name: token for name, token in named.items() if read.tokenizer.token_to_id(token) is not None}
        missing = [name for name in TEXT_TO_TEXT_TOKENS if name not in named]
        if missing:
            raise ValueError(f"a text-to-text model's tokenizer needs special tokens; missing: {', '.join(missing)}")
        plain, whole = (read.tokenizer.encode("a", add_special_tokens=special).tokens for special in (False, True))
        end = named["eos_token"]
        if whole not in ([*plain, end], [named.get("bos_token"), *plain, end]):
            raise ValueError(f"only {end} may be added to a text, at its end, and bos_token at its start, got {whole}")
        if read.settings.get("clean_up_tokenization_spaces"):
            clean_up_texts(read.tokenizer)
        return read.tokenizer, named

    return _read_tokenizer(folder, {}, finish)


class _Read(NamedTuple):
    """A tokenizer without its template, its tokens by setting, tokenizer_config.json, whether its class numbers
    segments, and the content of tokenizer.json."""

    tokenizer: Tokenizer
    named: Mapping[str, Any]
    settings: Mapping[str, Any]
    segments: bool
    whole: Mapping[str, Any]


def _read_tokenizer(folder: Path, supported: Mapping[str, tuple[Any, ...]], finish: Callable[[_Read], T]) -> T:
    """The result of `finish` for the tokenizer of a folder. Args: supported: further values of settings."""
    settings, whole, config = (settings_in(folder / name) for name in (SETTINGS, WHOLE, "config.json"))
    if settings.get("add_prefix_space", True) is None:  # the default of its class
        del settings["add_prefix_space"]
    known = classes()
    by_name = {name: one for one in known for name in one.names}
    default = next((one for one in known if config.get("model_type") in one.model_types), BERT)
    assumed = default.names[0] if default.assumed else AS_WRITTEN[0]
    class_name = settings.get("tokenizer_class") or config.get("tokenizer_class") or assumed
    if class_name not in (*by_name, *AS_WRITTEN):
        expected = ", ".join((*by_name, *AS_WRITTEN))
        raise ValueError(
            f"{folder}: the tokenizer class {class_name} is not supported; expected {expected}. "
            f"If its tokens are those of {default.names[0]}, set tokenizer_class to it in {SETTINGS} of a copy"
        )
    always = (one for one in known if config.get("model_type") in one.always)
    own = next(always, by_name.get(class_name))
    if own is not None and own.unchanged(whole):
        own = None
    _check_settings(folder, settings, whole, supported)
    others = (own or default).files
    names = (WHOLE,) if (folder / WHOLE).is_file() else others
    if not names or not all((folder / name).is_file() for name in names):
        expected = f"neither {WHOLE} nor {' and '.join(others)}" if others else f"no {WHOLE}"
        raise FileNotFoundError(
            f"{folder} has {expected}; with Transformers, AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER) "
            "writes it"
        )
    if own is None and names != (WHOLE,):
        raise ValueError(f"{folder}: the tokenizer class {class_name} needs {WHOLE}, not {' and '.join(names)}")
    # The library raises plain Exceptions, and panics, for files that are not tokenizers.
    try:
        if own is not None and own.read is not None and names == own.files:
            whole = own.read(folder)
        check_charsmaps(whole.get("normalizer"))
        if "merges" in whole["model"]:
            merges_of(whole["model"])
        named, extra, numbered = _further_tokens(folder, settings, whole)
        if own is None:
            tokenizer = tokenizer_of(whole)
            tokenizer.no_truncation()
            tokenizer.no_padding()
        else:
            named = {**own.named, **named}
            _refuse_other_models(own, whole)
            tokenizer = own.build(whole, named, settings)
            extra = [*extra, *own.extra(settings)]
        _add_tokens(tokenizer, named, extra, numbered)
        if own is not None:
            own.finish(tokenizer, named, settings)
        held = {**default.named, **named}
        held = {ours: held[theirs] for ours, theirs in default.stand_ins.items()} | held
        return finish(_Read(tokenizer, held, settings, own is not None and own.segments, whole))
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # Rust's, which is none
            raise
        kind, problem = (own or default).kind, f"it has no {error}" if isinstance(error, KeyError) else error
        raise ValueError(f"{folder / names[0]} is not a {kind} tokenizer: {problem}") from error


def tokenizer_of(whole: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer of a tokenizer.json, with its exact scores: the library rounds some in the last bit.

    Raises: Exception for what is not a tokenizer; the library has no narrower class.
    """
    tokenizer, model = Tokenizer.from_str(json.dumps(whole)), whole["model"]
    if model.get("type") == "Unigram":
        scores = [(piece, float(score)) for piece, score in model["vocab"]]
        tokenizer.model = Unigram(scores, model["unk_id"], byte_fallback=model.get("byte_fallback", False))
    return tokenizer


def write_tokenizer(
    tokenizer: Tokenizer, special: SpecialTokens, folder: Path, *, max_length: int | None = None
) -> None:
    """Writes the files from which `read_tokenizer` and Transformers read this tokenizer.

    Args:
      tokenizer: without truncation and padding.
      special: the names of its special tokens.
      folder: an existing folder.
      max_length: maximum input length in tokens, for truncation by Transformers; None = not known.
    """
    settings: dict[str, Any] = {} if max_length is None else {"model_max_length": max_length}
    if _is_bert(tokenizer, special):
        normalizer: Any = tokenizer.normalizer
        case = (normalizer.lowercase, normalizer.strip_accents, normalizer.handle_chinese_chars)
        settings |= {"tokenizer_class": BERT.names[0], **dict(zip(CASE, case, strict=True))}
        ids = tokenizer.get_vocab(with_added_tokens=False)
        pieces = "".join(f"{piece}\n" for piece in sorted(ids, key=ids.__getitem__))
        (folder / PIECES).write_text(pieces, encoding="utf-8")
    else:
        segments = [_SEGMENTS] if num_segments(tokenizer) > 1 else []
        settings |= {"tokenizer_class": AS_WRITTEN[0], "model_input_names": ["input_ids", *segments, "attention_mask"]}
    if special.mask == special.sep:  # it stands in for a masked token that the tokenizer does not have
        start_and_end = {"bos_token": special.cls, "eos_token": special.sep}
        write_files(tokenizer, folder, settings | start_and_end | {"unk_token": special.unk, "pad_token": special.pad})
        return
    write_files(tokenizer, folder, settings | special.settings())


def write_files(tokenizer: Tokenizer, folder: Path, settings: Mapping[str, Any]) -> None:
    """Writes a tokenizer without truncation and padding, and the settings that Transformers reads next to it."""
    (folder / WHOLE).write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def num_segments(tokenizer: Tokenizer) -> int:
    """Number of segments that a tokenizer distinguishes in pairs."""
    return 1 + max(tokenizer.encode("", "").type_ids, default=0)


def remove_segments(tokenizer: Tokenizer, special: SpecialTokens) -> None:
    """Gives pairs the template of a model without segments: all are 0."""
    if num_segments(tokenizer) == 1:
        return
    cls, sep = special.cls, special.sep
    between = [f"{token}:0" for token in tokenizer.encode("", "").tokens[1:-1]]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=" ".join([cls, "$A", *between, "$B:0", f"{sep}:0"]),
        special_tokens=[with_id(tokenizer, token) for token in dict.fromkeys((cls, sep))],
    )


def _refuse_other_models(own: TokenizerClass, whole: Mapping[str, Any]) -> None:
    kind = whole["model"].get("type", own.kind)
    if kind != own.kind:
        raise ValueError(f"expected a {own.kind} tokenizer, as {own.names[0]} has, got {kind}")


def _check_settings(
    folder: Path, settings: Mapping[str, Any], whole: Mapping[str, Any], supported: Mapping[str, tuple[Any, ...]]
) -> None:
    """Raises: ValueError for settings that change tokens and are not applied."""
    for name in (*CASE, "add_prefix_space", "trim_offsets"):
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
    rules = TOKENIZER_SETTINGS._replace(supported={**TOKENIZER_SETTINGS.supported, **supported})
    for name, given in ((SETTINGS, settings), (SPECIAL_MAP, settings_in(folder / SPECIAL_MAP)), (WHOLE, sides)):
        rules.check(folder / name, {key: value for key, value in given.items() if not _is_token(key)})


def _is_token(name: str) -> bool:
    """Whether a setting names a token; add_bos_token and add_eos_token do not."""
    return name.endswith("_token") and not name.startswith("add_")


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
    held = {name: token and by_content.get(str(token), token) for name, token in named.items()}
    return held, extra, numbered


def _token(value: Any) -> str | AddedToken | None:
    """A special token of the files: its text, or an object with options for the text around it."""
    if not isinstance(value, dict):
        return value
    return AddedToken(**{name: field for name, field in value.items() if name != "__type"} | {"special": True})


def _add_tokens(
    tokenizer: Tokenizer, named: Mapping[str, Any], extra: Sequence[Any], numbered: Mapping[int, AddedToken]
) -> None:
    """Adds the tokens in Transformers' order, with the next free ids, whatever the files say."""
    held = tokenizer.get_added_tokens_decoder().values()
    as_held = {repr(token) for token in held}
    tokens: list[Any] = [token for _, token in sorted(numbered.items()) if repr(token) not in as_held]
    contents = {token.content for token in held} | {token.content for token in tokens}
    rest = [named[name] for name in named if name not in _ORDER]
    in_order = [*(named.get(name) for name in _ORDER), *rest, *extra]
    for token in in_order:
        if token is not None and str(token) not in contents:
            contents.add(str(token))
            tokens.append(AddedToken(token, special=True) if isinstance(token, str) else token)
    special = {str(token) for token in named.values() if token is not None}
    for token in tokens:
        token.special = token.special or token.content in special
    tokenizer.add_tokens(tokens)


def _check_template(tokenizer: Tokenizer, special: SpecialTokens) -> None:
    """Raises: ValueError unless texts are read as [CLS] A [SEP], and pairs as [CLS] A [SEP] B [SEP], with one or more
    [SEP] between them."""
    (text,) = tokenizer.encode_batch([special.mask], add_special_tokens=False)
    single, pair = tokenizer.encode(special.mask), tokenizer.encode(special.mask, special.mask)
    first, last = [special.cls, *text.tokens, special.sep], [*text.tokens, special.sep]
    more = len(pair.tokens) - len(first) - len(last)
    middle = len(pair.tokens) - len(last)
    if (
        single.tokens != first
        or pair.tokens != [*first, *[special.sep] * more, *last]
        or any(single.type_ids + pair.type_ids[:middle])
        or set(pair.type_ids[middle:]) not in ({0}, {1})
    ):
        raise ValueError(
            f"its post-processor must give {special.cls} A {special.sep} and {special.cls} A {special.sep} B "
            f"{special.sep}, got {pair.tokens}"
        )


def _is_bert(tokenizer: Tokenizer, special: SpecialTokens) -> bool:
    """Whether a BertTokenizer with the same tokens and settings of case is this tokenizer."""
    normalizer: Any = tokenizer.normalizer
    if not isinstance(normalizer, normalizers.BertNormalizer):
        return False
    ids = tokenizer.get_vocab(with_added_tokens=False)
    like = bert_tokenizer(
        ids,
        special,
        lowercase=normalizer.lowercase,
        strip_accents=normalizer.strip_accents,
        split_chinese=normalizer.handle_chinese_chars,
    )
    parts = [json.loads(each.to_str()) for each in (tokenizer, like)]
    same = all(parts[0][name] == parts[1][name] for name in ("model", "normalizer", "pre_tokenizer"))
    return same and num_segments(tokenizer) > 1
