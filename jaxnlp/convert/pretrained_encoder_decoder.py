"""Folders of pretrained encoder-decoders, as Hugging Face Transformers writes and reads them."""

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jaxnlp.convert.encoder_decoder_weights import (
    from_huggingface,
    has_head,
    has_output_bias,
    table_names,
    to_huggingface,
    unsupported,
)
from jaxnlp.convert.encoder_decoders import EncoderDecoderFamily, families
from jaxnlp.convert.folders import (
    CONFIG,
    GENERATION,
    PretrainedError,
    errors_name,
    find_folder,
    read_object,
    read_tensors,
    read_vocabulary,
    refuse_files,
    refuse_settings,
    write_folder,
)
from jaxnlp.convert.settings import GENERATION_SETTINGS
from jaxnlp.convert.shapes import fields_of, settings_of
from jaxnlp.models.encoder_decoder import EncoderDecoderConfig
from jaxnlp.nn.compute import EXACT
from jaxnlp.saving.atomic_files import refuse_contents
from jaxnlp.text.generation_constraints import GenerationConstraints
from jaxnlp.text.pretrained_subwords import PretrainedSubwords
from jaxnlp.typing import Params


class PretrainedEncoderDecoder(NamedTuple):
    """A pretrained encoder-decoder with its output layer.

    Attributes:
      config: shape of the model.
      params: parameters of `EncoderDecoder`, NumPy arrays.
      vocabulary: the tokenizer of targets, and of sources unless its `of_sources` is another one.
    """

    config: EncoderDecoderConfig
    params: Params
    vocabulary: PretrainedSubwords


def read_encoder_decoder(path: str | Path, *, ignore: tuple[str, ...] = ()) -> PretrainedEncoderDecoder:
    """Reads an encoder-decoder from a folder that Transformers wrote, or from the Hugging Face Hub.

    Args:
      path: a folder, or a name such as "google-t5/t5-small", which is downloaded once.
      ignore: names, or their prefixes, of tensors to leave out, such as "classification_head.".

    Raises:
      PretrainedError: when neither exists, for another model, and for weights that are not safetensors.
      WeightsError: listing tensors that are missing, unknown or have other shapes.
    """
    folder = find_folder(path)
    file = folder / CONFIG
    family, fields, size = fields_of(file, families(), EncoderDecoderConfig, _NEEDED, default="")
    settings = {**family.special, **read_object(file)}
    fields = {**family.fixed, **family.defaults, **fields}
    refuse_files(folder)
    shared, source_size = settings.get("share_encoder_decoder_embeddings", True), size
    if type(shared) is not bool:
        raise PretrainedError(f"{file}: share_encoder_decoder_embeddings must be true or false, got {shared!r}")
    if not shared:
        size = settings.get("decoder_vocab_size") or size
        if type(size) is not int:
            raise PretrainedError(f"{file}: decoder_vocab_size must be a whole number, got {size!r}")
    start = _start(file, settings)
    constraints = _constraints(folder, settings, start, size)

    def read(place: Path) -> PretrainedSubwords:
        vocabulary = family.tokenizer.of_folder(place, start, constraints)
        if shared and vocabulary.of_sources() is not vocabulary:
            raise ValueError(f"{file}: share_encoder_decoder_embeddings true, but the tokenizer has separate_vocabs")
        # The released summarisers have a token for masks, but no embedding for it.
        unused = family.mask_is_optional and vocabulary.id_of(vocabulary.named.get("mask_token", "")) == size
        return vocabulary.without("mask_token") if unused else vocabulary

    vocabulary = read_vocabulary(folder, read, size)
    _check(file, settings, fields, family, vocabulary)
    _check_tables(file, vocabulary, (source_size, size), shared=shared)
    if start >= size:
        raise PretrainedError(f"{file}: decoder_start_token_id must be below vocab_size {size}, got {start}")
    with errors_name(file):
        config = _config(settings, fields, family)
    tensors = read_tensors(folder, str(path), ignore=ignore)
    untied = has_head(tensors, family, tied=settings.get("tie_word_embeddings", True), shared=shared)
    kinds: Any = ("shared", "shared_inputs") if shared else ("tied", "separate")
    config = dataclasses.replace(
        config,
        embeddings=kinds[untied],
        output_bias=has_output_bias(tensors, family),
        padded_vocabulary_size=size if vocabulary.size < size else None,
    )
    with errors_name(folder):
        params = from_huggingface(tensors, config, size, family, source_size=None if shared else source_size)
    return PretrainedEncoderDecoder(config, params, vocabulary)


_NEEDED = ("num_layers", "num_heads", "head_width", "width", "feed_forward_width")


def _config(
    settings: Mapping[str, Any], fields: Mapping[str, Any], family: EncoderDecoderFamily
) -> EncoderDecoderConfig:
    """The model's shape from config.json. Args: fields: of our config. Raises: ValueError."""
    activation, gated = fields["feed_forward"]
    plain = {name: value for name, value in fields.items() if name not in ("feed_forward", "num_decoder_layers")}
    tied = settings.get("tie_word_embeddings", True)
    plain = {"attention_dropout_rate": fields["dropout_rate"], **plain}
    return EncoderDecoderConfig(
        **plain,
        num_decoder_layers=fields.get("num_decoder_layers") or fields["num_layers"],
        activation=activation,
        gated=gated,
        embeddings="shared",
        scale_logits=family.scales_logits and settings.get("scale_decoder_outputs", tied),
        compute=EXACT,
    )


def _start(file: Path, settings: Mapping[str, Any]) -> int:
    """The id of a target's start symbol: padding, if no setting gives it. Raises: PretrainedError."""
    given = settings.get("decoder_start_token_id")
    start = settings.get("pad_token_id", 0) if given is None else given
    if type(start) is not int or start < 0:
        raise PretrainedError(f"{file}: decoder_start_token_id must be the id of a token, got {start!r}")
    return start


def _constraints(folder: Path, settings: Mapping[str, Any], start: int, size: int) -> GenerationConstraints:
    """The constraints on generated targets: settings of generation_config.json, or of config.json in a folder without
    it. Raises: PretrainedError for unsupported settings."""
    file = folder / GENERATION
    if file.is_file():
        generation, end = read_object(file), settings.get("eos_token_id")
        _check_ends(file, generation, start, end)
        settings = {**generation, "eos_token_id": end}
    else:
        file = folder / CONFIG
        settings = {name: settings[name] for name in GENERATION_SETTINGS.names if name in settings}
    refuse_settings(file, settings, GENERATION_SETTINGS)
    first, end = (settings.get(name) for name in ("forced_bos_token_id", "forced_eos_token_id"))
    if first is not None and not (type(first) is int and 0 <= first < size):
        raise PretrainedError(f"{file}: forced_bos_token_id must be from 0 to {size - 1}, or null, got {first!r}")
    if end not in (None, settings.get("eos_token_id")):
        raise PretrainedError(f"{file}: forced_eos_token_id {end!r}, expected eos_token_id or null")
    renormalize = settings.get("renormalize_logits") or False
    if type(renormalize) is not bool:
        raise PretrainedError(f"{file}: renormalize_logits must be true, false or null, got {renormalize!r}")
    suppressed, min_length = _suppressed_tokens(file, settings, size), _min_length(file, settings)
    return GenerationConstraints(first, end is not None, suppressed, min_length, renormalize)


def _check_ends(file: Path, generation: Mapping[str, Any], start: int, end: Any) -> None:
    """Raises: PretrainedError when generation_config.json and config.json have other tokens at the start or the end of
    targets."""
    # Without a decoder_start_token_id, Transformers starts with bos_token_id.
    first = next(
        (name for name in ("decoder_start_token_id", "bos_token_id") if generation.get(name) is not None), None
    )
    expected = {"eos_token_id": end, **({} if first is None else {first: start})}
    for name, value in expected.items():
        if generation.get(name) not in (None, value, [value]):
            raise PretrainedError(
                f"{file}: {name} {generation[name]!r}, but by config.json it is {value!r}, and targets are generated "
                "here as they are trained; give both files the same token"
            )


def _min_length(file: Path, settings: Mapping[str, Any]) -> int:
    """The minimum number of tokens before the end symbol. Raises: PretrainedError for what is no number."""
    new, length = (settings.get(name) for name in ("min_new_tokens", "min_length"))
    for name, value in (("min_new_tokens", new), ("min_length", length)):
        if not (value is None or (type(value) is int and value >= 0)):
            raise PretrainedError(f"{file}: {name} must be a whole number or null, got {value!r}")
    return max((length or 0) - 1, 0) if new is None else new  # a length includes the start symbol


def _suppressed_tokens(file: Path, settings: Mapping[str, Any], size: int) -> tuple[int, ...]:
    """The tokens that are never generated: the words of one token in `bad_words_ids`, without the end symbol, as in
    Transformers.
    Raises: PretrainedError for longer words and unknown ids."""
    words = settings.get("bad_words_ids") or []
    single = isinstance(words, list) and all(isinstance(word, list) and len(word) == 1 for word in words)
    if not single or not all(type(one) is int and 0 <= one < size for (one,) in words):
        raise PretrainedError(
            f"{file}: not supported: bad_words_ids {words!r}, expected lists of one id each, from 0 to {size - 1}"
        )
    return tuple(one for (one,) in words if one != settings.get("eos_token_id"))


def _check(
    file: Path,
    settings: Mapping[str, Any],
    fields: Mapping[str, Any],
    family: EncoderDecoderFamily,
    vocabulary: PretrainedSubwords,
) -> None:
    """Raises: PretrainedError for settings that contradict each other or the tokenizer."""
    activation, gated = fields["feed_forward"]
    expected: dict[str, Any] = {
        "eos_token_id": vocabulary.end,
        "pad_token_id": vocabulary.of_sources().padding,
        "dense_act_fn": {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_new"}.get(activation),
        "is_gated_act": gated,
    }
    if settings.get("share_encoder_decoder_embeddings", True):
        expected["decoder_vocab_size"] = settings.get("decoder_vocab_size") and settings["vocab_size"]
    same = {**family.aliases, **{name: ours for name, ours in family.fields.items() if name not in family.values}}
    expected |= {name: fields[ours] for name, ours in same.items() if ours in _NEEDED}
    for name in ("tie_word_embeddings", "scale_decoder_outputs"):
        if type(settings.get(name, True)) is not bool:
            raise PretrainedError(f"{file}: {name} must be true or false, got {settings[name]!r}")
    for name, value in expected.items():
        if settings.get(name, value) != value:
            raise PretrainedError(f"{file}: {name} {settings[name]!r}, expected {value!r}")


def _check_tables(file: Path, vocabulary: PretrainedSubwords, sizes: tuple[int, int], *, shared: bool) -> None:
    """Raises: PretrainedError when a model with two tables of embeddings does not fit its tokenizer.

    Args: sizes: numbers of embeddings of sources and of targets.
    """
    source = vocabulary.of_sources()
    if not shared and (source.size, vocabulary.size) != sizes:
        raise PretrainedError(
            f"{file}: vocab_size and decoder_vocab_size {sizes}, expected the sizes of both vocabularies, "
            f"{(source.size, vocabulary.size)}: with two tables of embeddings each row needs a token"
        )
    if source.end != vocabulary.end:
        raise PretrainedError(f"{file}: the end symbol has two ids, {source.end} and {vocabulary.end}, expected one")


def save_encoder_decoder(
    folder: str | Path, pretrained: PretrainedEncoderDecoder, *, model_type: str | None = None
) -> str:
    """Writes a folder that Transformers' `from_pretrained` reads, atomically.

    Args:
      folder: new or empty.
      pretrained: the encoder-decoder.
      model_type: the family to write; None = the first with its options.

    Returns: the name of its class in Transformers.

    Raises:
      FileExistsError: when the folder is not empty.
      WeightsError: for variants that Transformers does not have, and parameters that do not fit the config.
    """
    config, params, vocabulary = pretrained
    model_type = model_type or _model_type(config)
    folder, family = Path(folder).expanduser(), families()[model_type]
    refuse_contents(folder)
    tensors = to_huggingface(params, config, family)
    ours = {name: getattr(config, name) for name in family.fields.values() if name != "feed_forward"}
    ours |= {"feed_forward": (config.activation, config.gated), "num_decoder_layers": config.decoder_layers}
    ours |= {"head_width": config.key_width, "feed_forward_width": config.hidden_width}
    settings: dict[str, Any] = {
        "architectures": [family.architecture],
        "model_type": model_type,
        **settings_of(family, ours),
        "is_encoder_decoder": True,
        "tie_word_embeddings": config.ties_output,
        **({"scale_decoder_outputs": config.scale_logits} if family.scales_logits else {}),
        "vocab_size": len(params[table_names(config)[0]]["embedding"]),
        "pad_token_id": vocabulary.of_sources().padding,
        "eos_token_id": vocabulary.end,
        "decoder_start_token_id": vocabulary.start,
    }
    if not config.one_table:
        target = len(params[table_names(config)[1]]["embedding"])
        settings |= {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": target}
    if "bos_token" in vocabulary.named:
        settings["bos_token_id"] = vocabulary.id_of(vocabulary.named["bos_token"])
    special = {name: value for name, value in settings.items() if name.endswith("_token_id")}
    constraints = vocabulary.constraints
    if constraints.forced_bos is not None:
        special["forced_bos_token_id"] = constraints.forced_bos
    if constraints.forced_eos:
        special["forced_eos_token_id"] = vocabulary.end
    if constraints.suppressed_tokens:
        special["bad_words_ids"] = [[token] for token in constraints.suppressed_tokens]
    if constraints.min_length:
        special["min_length"] = constraints.min_length + 1
    if constraints.renormalize:
        special["renormalize_logits"] = True
    tokenizer = functools.partial(vocabulary.save, max_length=config.context_length)
    write_folder(folder, tensors, {CONFIG: settings, GENERATION: special}, write_tokenizer=tokenizer)
    return family.architecture


def _model_type(config: EncoderDecoderConfig) -> str:
    """The family with most of a model's options; T5 rather than mT5, which has fewer."""
    known = families()
    return min(reversed(known), key=lambda name: len(unsupported(config, known[name])))
