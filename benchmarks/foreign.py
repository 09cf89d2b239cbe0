"""Folders of Transformers with random weights, in the sizes of released models, for `encode` and `complete`.

Both sides read the same folder and compute in float32.
"""

import functools
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.answers import OPPONENT
from benchmarks.case import OURS, Step

T = TypeVar("T")
ENCODERS: Mapping[str, Mapping[str, Any]] = {
    "bert": {},
    "distilbert": {},
    "electra": {},
}
"""Changes of the default settings, by model type: the defaults are BERT-base, DistilBERT and a small ELECTRA."""
IMAGE_ENCODERS: Mapping[str, Mapping[str, Any]] = {"vit": {}}
"""The same for encoders of images: ViT-base with patches of 16 x 16."""
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
        transformers.ViTImageProcessor(size={"height": SIDE, "width": SIDE}).save_pretrained(folder)
    elif model_type in ENCODERS:
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{number}" for number in range(WORDS))]
        (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    else:
        from jaxnlp.text.byte_pairs import BytePairs

        BytePairs.of([PROMPT], 256).save(folder, max_length=1_024)
