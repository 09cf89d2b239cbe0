"""Folders of Transformers with random weights, in the sizes of released models, for `encode` and `complete`.

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
}
"""Changes of the default settings, by model type: BERT-base, DistilBERT, a small ELECTRA, and the base models of
RoBERTa, XLM-RoBERTa and ModernBERT."""
IMAGE_ENCODERS: Mapping[str, Mapping[str, Any]] = {"vit": {}, "deit": {}}
"""The same for encoders of images: ViT-base and DeiT-base with patches of 16 x 16."""
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
"""GPT-2 with 124 million parameters, and a Llama in the shape of SmolLM2 with 135 million."""
SIDE = 224
"""Height and width of an image, in pixels."""
WORDS = 64
SENTENCE = " ".join(f"word{number % WORDS}" for number in range(30))
"""A text of 30 words, which are tokens of the encoders."""
PROMPT, NEW = "The cat sat on the mat", 50
"""A prompt, and the number of tokens that follow it."""


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
    """A model of Transformers with random weights, and a tokenizer of few tokens."""
    import torch
    import transformers

    torch.manual_seed(0)
    sizes = {**ENCODERS, **IMAGE_ENCODERS, **DECODERS}[model_type]
    config = transformers.AutoConfig.for_model(model_type, **sizes)
    auto = transformers.AutoModelForCausalLM if model_type in DECODERS else transformers.AutoModel
    options = {"add_pooling_layer": False} if model_type in IMAGE_ENCODERS else {}
    auto.from_config(config, **options).save_pretrained(folder)
    if model_type in IMAGE_ENCODERS:
        size = {"height": SIDE, "width": SIDE}
        transformers.ViTImageProcessor(size=size).save_pretrained(folder)
    elif model_type in ENCODERS:
        write_words(folder)
    else:
        from jaxnlp.text.byte_pairs import BytePairs

        BytePairs.of([PROMPT], 256).save(folder, max_length=1_024)


def write_words(folder: Path) -> None:
    """A tokenizer whose tokens are words, with the special tokens of encoders."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    pieces = [*special.values(), *(f"word{number}" for number in range(WORDS))]
    ids = {piece: id_ for id_, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordLevel(ids, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ends = [(name, ids[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ends)
    inputs = ["input_ids", "attention_mask"]
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=inputs, **special).save_pretrained(folder)
