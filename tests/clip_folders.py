"""Folders of tiny CLIPs, as Transformers writes them."""

import functools
import tempfile
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tests.encoder_folders import TEXTS
from tests.image_folders import PROCESSORS

START, END = "<|startoftext|>", "<|endoftext|>"
TEXT = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 12, "intermediate_size": 20}
TEXT |= {"max_position_embeddings": 24, "projection_dim": 8}
IMAGE = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16, "intermediate_size": 20}
IMAGE |= {"image_size": 12, "patch_size": 4, "projection_dim": 8}
IMAGES = PROCESSORS["CLIP"]
KINDS = ("CLIPModel", "CLIPTextModelWithProjection", "CLIPTextModel")
IMAGE_KINDS = ("CLIPVisionModelWithProjection", "CLIPVisionModel")


def tokenizer():
    """A tokenizer of few merges. A new one: a call changes how it truncates, and that is saved."""
    vocabulary, merges = _tokens()
    return transformers.CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=24)


@functools.cache
def _tokens():
    """The vocabulary and the merges."""
    trained = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=120, end_of_word_suffix="</w>", show_progress=False)
    trained.train_from_iterator([text.lower() for text in TEXTS], trainer)
    with tempfile.TemporaryDirectory() as folder:
        trained.model.save(folder)
        lines = (Path(folder) / "merges.txt").read_text(encoding="utf-8").split("\n")[1:]
    merges = [tuple(line.split(" ")) for line in lines if line]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*letters, *(f"{letter}</w>" for letter in letters), *map("".join, merges), START, END]
    return {token: index for index, token in enumerate(tokens)}, merges


def make_model(kind="CLIPModel", *, text=(), image=(), **changes):
    """A model of Transformers with random parameters that all count."""
    settings = {"vocab_size": len(tokenizer()), "eos_token_id": tokenizer().eos_token_id, **TEXT, **dict(text)}
    texts, images = settings, {**IMAGE, **dict(image)}
    if kind == "CLIPModel":
        config = transformers.CLIPConfig(text_config=texts, vision_config=images, **{"projection_dim": 8, **changes})
    elif "Text" in kind:
        config = transformers.CLIPTextConfig(**texts | changes)
    else:
        config = transformers.CLIPVisionConfig(**images | changes)
    model = getattr(transformers, kind)(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name != "logit_scale":
                norm = "norm" in name and name.endswith("weight")
                parameter.copy_(float(norm) + 0.4 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def write_folder(folder, kind="CLIPModel", **changes):
    """Writes a model, its tokenizer and its image processor. Returns: the model."""
    model = make_model(kind, **changes)
    model.save_pretrained(folder)
    if "Vision" not in kind:
        tokenizer().save_pretrained(folder)
    if "Text" not in kind:
        IMAGES.save_pretrained(folder)
    return model
