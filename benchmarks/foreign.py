"""Folders of Transformers with random weights, in the sizes of released models, for `encode`, `complete` and `rewrite`.

Both sides read the same folder and have its weights in the same type, but for 8 bits, which only jaxnlp has.
"""

import functools
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.answers import OPPONENT, Weights
from benchmarks.case import OURS, Step

T = TypeVar("T")
ENCODERS: Mapping[str, Mapping[str, Any]] = {
    "bert": {},
    "distilbert": {},
    "electra": {},
    "roberta": {"vocab_size": 50_265, "max_position_embeddings": 514, "type_vocab_size": 1, "pad_token_id": 0},
    "xlm-roberta": {"vocab_size": 250_002, "max_position_embeddings": 514, "type_vocab_size": 1, "pad_token_id": 0},
    "modernbert": {"pad_token_id": 0},
    "clip_text_model": {},
}
"""Changes of the default settings, by model type: BERT-base, DistilBERT, a small ELECTRA, the base models of RoBERTa,
XLM-RoBERTa and ModernBERT, and CLIP-base's encoder of texts."""
IMAGE_ENCODERS: Mapping[str, Mapping[str, Any]] = {"vit": {}, "deit": {}, "clip_vision_model": {}}
"""The same for encoders of images: ViT-base and DeiT-base with patches of 16 x 16, CLIP-base's with 32 x 32."""
DECODERS: Mapping[str, Mapping[str, Any]] = {
    "gpt2": {},
    "llama": {
        "hidden_size": 576,
        "intermediate_size": 1_536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "tie_word_embeddings": True,
    },
}
"""GPT-2 with 124 million parameters, and a Llama with the blocks of SmolLM2-135M and 32,000 tokens: 125 million."""
ENCODER_DECODERS: Mapping[str, Mapping[str, Any]] = {
    "t5": {},
    "bart": {
        "d_model": 768,
        **dict.fromkeys(("encoder_layers", "decoder_layers"), 6),
        **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 12),
        **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 3_072),
    },
    "marian": {
        "d_model": 512,
        **dict.fromkeys(("encoder_layers", "decoder_layers"), 6),
        **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 8),
        **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 2_048),
        "activation_function": "swish",
        "scale_embedding": True,
    },
}
"""T5-small, BART-base, and a Marian in the size of OPUS-MT."""
SIDE = 224
"""Height and width of an image, in pixels."""
OPUS = 58_101
"""Pieces of an OPUS-MT."""
LETTERS = "abcdefghijklmnopqrstuvwxyz"
REWRITTEN = 70
"""The most tokens that `run.translate` writes for a source of 30 tokens."""
PROMPT, NEW = "The cat sat on the mat", 50
"""A prompt, and the number of tokens that follow it."""


def sentence(words: int) -> str:
    """A text of words of one letter, each of which is a token."""
    return " ".join((3 * LETTERS)[:words])


def bits_of_weights() -> dict[str, Weights]:
    """The types to compare, by the words for them: bfloat16 only if the CPU has instructions for it."""
    from jaxnlp.ops.matrix_products import cpu_multiplies_bfloat16

    types: dict[str, Weights] = {"32 bits": "float32", "16 bits": "bfloat16"}
    return types if cpu_multiplies_bfloat16() else {"32 bits": "float32"}


def implementations(ours: Callable[..., Step], theirs: Callable[..., Step], *arguments: Any) -> Mapping[str, Any]:
    """Both sides, prepared with these arguments."""
    return {OURS: functools.partial(ours, *arguments), OPPONENT: functools.partial(theirs, *arguments)}


def with_folder(read: Callable[[Path], T], model_type: str) -> T:
    """What is read from the folder of a model, which is then removed."""
    with tempfile.TemporaryDirectory() as folder:
        write(model_type, Path(folder))
        return read(Path(folder))


def write(model_type: str, folder: Path) -> None:
    """A model of Transformers with random weights, and a tokenizer of few tokens or a processor of images."""
    import torch
    import transformers

    torch.manual_seed(0)
    sizes = {**ENCODERS, **IMAGE_ENCODERS, **DECODERS, **ENCODER_DECODERS}[model_type]
    ids = TOKENIZERS[model_type](folder)
    config = transformers.AutoConfig.for_model(model_type, **{**sizes, **ids})
    kind, options = class_of(model_type)
    model = getattr(kind, "from_config", kind)(config, **options)  # a class by itself makes a model of a config
    if model_type in ENCODER_DECODERS:
        model.generation_config.update(min_new_tokens=REWRITTEN, forced_eos_token_id=None)
    model.save_pretrained(folder)


def read(model_type: str, folder: Path, weights: Weights) -> Any:
    """The model of a folder, as Transformers reads it."""
    kind, options = class_of(model_type)
    return kind.from_pretrained(folder, dtype=weights, **options).eval()


def class_of(model_type: str) -> tuple[Any, dict[str, bool]]:
    """The class of Transformers whose outputs are compared, and its options."""
    import transformers

    if model_type in DECODERS:
        return transformers.AutoModelForCausalLM, {}
    if model_type in ENCODER_DECODERS:
        return transformers.AutoModelForSeq2SeqLM, {}
    if model_type == "clip_text_model":
        return transformers.CLIPTextModelWithProjection, {}
    if model_type == "clip_vision_model":
        return transformers.CLIPVisionModelWithProjection, {}
    return transformers.AutoModel, {"add_pooling_layer": False} if model_type in IMAGE_ENCODERS else {}


def write_words(folder: Path, start: str = "[CLS] ", **further: str) -> dict[str, int]:
    """A tokenizer whose tokens are words of one letter, with special tokens.

    Args: start: of each text; further: special tokens. Returns: the settings of a model with ids of tokens.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    ids = {piece: id_ for id_, piece in enumerate([*special.values(), *LETTERS])}
    tokenizer = Tokenizer(models.WordLevel(ids, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ends = [(name, ids[name]) for name in ("[CLS]", "[SEP]")]
    template = f"{start}$A [SEP]"
    tokenizer.post_processor = processors.TemplateProcessing(template, f"{template} $B:1 [SEP]:1", ends)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_input_names=["input_ids", "attention_mask"], **special, **further
    ).save_pretrained(folder)
    return {}


def write_ended_words(folder: Path) -> dict[str, int]:
    """The same tokenizer for texts that only have an end symbol."""
    write_words(folder, "", eos_token="[SEP]")
    return {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 0}


def write_pieces(folder: Path) -> dict[str, int]:
    """A tokenizer of Marian, whose pieces are words of one letter."""
    import json

    import sentencepiece

    for name in ("source.spm", "target.spm"):
        with (folder / name).open("wb") as file:
            sentencepiece.SentencePieceTrainer.Train(
                sentence_iterator=iter([" ".join(LETTERS)] * 4),
                model_writer=file,
                model_type="bpe",
                vocab_size=3 + 1 + 2 * len(LETTERS),
                minloglevel=2,
            )
    words = (*LETTERS, *range(OPUS - len(LETTERS) - 3))  # Transformers reads no id without a piece
    pieces = ["</s>", "<unk>", *(f"\u2581{word}" for word in words), "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({piece: id_ for id_, piece in enumerate(pieces)}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MarianTokenizer"}))
    padding = len(pieces) - 1
    return {"vocab_size": OPUS, "pad_token_id": padding, "eos_token_id": 0, "decoder_start_token_id": padding}


def write_lower_case(folder: Path) -> dict[str, int]:
    """A tokenizer of CLIP without merges."""
    from tokenizers import pre_tokenizers
    from transformers import CLIPTokenizer

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    CLIPTokenizer(vocab={token: id_ for id_, token in enumerate(tokens)}, merges=[]).save_pretrained(folder)
    return {"bos_token_id": len(tokens) - 2, "eos_token_id": len(tokens) - 1}


def write_byte_pairs(folder: Path) -> dict[str, int]:
    """A tokenizer of GPT-2."""
    from jaxnlp.text.byte_pairs import BytePairs

    BytePairs.of([PROMPT], 256).save(folder, max_length=1_024)
    return {}


def write_image_processor(folder: Path) -> dict[str, int]:
    """A processor of images of `SIDE`."""
    from transformers import ViTImageProcessor

    ViTImageProcessor(size={"height": SIDE, "width": SIDE}).save_pretrained(folder)
    return {}


TOKENIZERS: Mapping[str, Callable[[Path], dict[str, int]]] = {
    **dict.fromkeys(ENCODERS, write_words),
    **dict.fromkeys(IMAGE_ENCODERS, write_image_processor),
    **dict.fromkeys(DECODERS, write_byte_pairs),
    **dict.fromkeys(ENCODER_DECODERS, write_ended_words),
    "clip_text_model": write_lower_case,
    "marian": write_pieces,
}
"""Functions that write a model's tokenizer or processor, and return settings with ids of its tokens, by model type."""
