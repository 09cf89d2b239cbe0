"""The sets of parameters that have weight decay and Muon, for every model of the library."""

import functools

import jax
import pytest

from jaxnlp.models import parameter_shapes
from jaxnlp.models.bert import BertConfig
from jaxnlp.models.bert_classifier import BertClassifierConfig
from jaxnlp.models.bert_pretraining import BertPretrainingConfig
from jaxnlp.models.gpt import GPTConfig
from jaxnlp.models.perceiver import PerceiverConfig
from jaxnlp.models.recurrent_lm import RecurrentLMConfig
from jaxnlp.models.synthesizer import SynthesizerConfig
from jaxnlp.targets import OneClass
from jaxnlp.text.classifier_processor import TextClassifierProcessor, TextPart
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary
from tests.processors import sized
from train.optimizer import muon_or_adam
from train.optimizer.chain import has_weight_decay
from train.optimizer.muon import as_matrices
from train.optimizer.parameters import describe, names

TWO = OneClass(("0", "1"))
PARTS = TextClassifierProcessor(
    WordPieceVocabulary.of_pieces(SPECIAL), 5, (("sst", TextPart(TWO)), ("quora", TextPart(TWO, 2))), "apart"
)
ENCODER = BertConfig(num_layers=2, num_heads=2, width=4, max_positions=4)
DECODER = {"num_layers": 3, "num_heads": 2, "width": 4, "context_length": 4, "tie_embeddings": False}
LAYERS = ("recurrent/layer_0_forward", "recurrent/layer_1_forward")


def block(prefix, *attention):
    names = (*(f"attention/{name}" for name in attention), "attention/out", "feed_forward/up", "feed_forward/down")
    return {f"{prefix}/{name}/kernel" for name in names}


RECURRENT = {f"{layer}/{name}" for layer in LAYERS for name in ("kernel", "recurrent_kernel")}
ENCODED = block("encoder/blocks", "qkv") | {"encoder/pooler/kernel"}
PERCEIVER = block("blocks", "qkv") | block("down_project", "q", "kv") | block("up_project", "q", "kv")


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("model", "hidden", "heads"),
    [
        (GPTConfig(**DECODER), block("blocks", "qkv"), {"head/kernel"}),
        (SynthesizerConfig(**DECODER), block("blocks", "zv") | {"blocks/attention/kernel"}, {"head/kernel"}),
        (PerceiverConfig(**DECODER, num_latents=2), PERCEIVER, {"head/kernel"}),
        (PerceiverConfig(**DECODER, num_latents=2, latent_placement="along"), PERCEIVER, {"head/kernel"}),
        (
            RecurrentLMConfig(embedding_width=4, widths=(6, 5), tie_embeddings=True),
            RECURRENT | {"projection/kernel"},
            set(),
        ),
        (RecurrentLMConfig(embedding_width=4, widths=(6, 5), cell="gru"), RECURRENT, {"head_kernel"}),
        (BertPretrainingConfig(encoder=ENCODER), ENCODED | {"heads/transform/kernel"}, {"heads/follows/kernel"}),
        (
            BertClassifierConfig(encoder=ENCODER, pair_layer="separate"),
            ENCODED | {"relations_quora/kernel"},
            {"heads_sst/kernel", "heads_quora/kernel"},
        ),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "build") else "",
)
def test_weight_decay_is_for_these_matrices_and_muon_for_those_that_are_not_heads(model, hidden, heads):
    processor = PARTS if isinstance(model, BertClassifierConfig) else sized(7)
    built = model.build(processor)
    shapes = parameter_shapes(built, *model.inputs(processor))

    described = functools.partial(describe, model.parameter)

    def marked(labels, mark):
        leaves = jax.tree_util.tree_leaves_with_path(labels(shapes, described))
        return {"/".join(names(path)) for path, label in leaves if label == mark}

    assert marked(muon_or_adam, "muon") == hidden
    assert marked(has_weight_decay, True) == hidden | heads
    for parameter, value in zip(jax.tree.leaves(described(shapes)), jax.tree.leaves(shapes), strict=True):
        if parameter.matrix and not parameter.head:
            assert len(as_matrices(parameter.axes, value.shape)) == (3 if "L" in parameter.axes else 2)
