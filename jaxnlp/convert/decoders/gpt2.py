"""GPT-2, as Transformers stores it: matrices [inputs, outputs], and one layer for queries, keys and values."""

from jaxnlp.convert.decoders import DecoderFamily, DecoderNames
from jaxnlp.convert.settings import model_settings
from jaxnlp.convert.tensors import BlockNames
from jaxnlp.models.gpt import GPTConfig

FIELDS = {
    "n_layer": "num_layers",
    "n_head": "num_heads",
    "n_embd": "width",
    "n_positions": "context_length",
    "n_inner": "feed_forward_width",
    "activation_function": "activation",
    "layer_norm_epsilon": "epsilon",
    "embd_pdrop": "embedding_dropout_rate",
    "attn_pdrop": "attention_dropout_rate",
    "resid_pdrop": "residual_dropout_rate",
    "tie_word_embeddings": "tie_embeddings",
}
ACTIVATIONS = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu", "relu": "relu"}

FAMILY = DecoderFamily(
    title="GPT-2",
    config=GPTConfig,
    architecture="GPT2LMHeadModel",
    base="transformer",
    names=DecoderNames(
        tokens="wte",
        positions="wpe",
        blocks=BlockNames(
            block="h.{}.",
            qkv=("attn.c_attn",),
            attention="attn.c_proj",
            attention_norm="ln_1",
            up="mlp.c_fc",
            down="mlp.c_proj",
            feed_forward_norm="ln_2",
        ),
        norm="ln_f",
        head="lm_head",
        buffers=("attn.bias", "attn.masked_bias"),
    ),
    transposed=False,
    fields=FIELDS,
    values={"activation_function": ACTIVATIONS},
    rules=model_settings(
        "gpt2",
        applied=tuple(name for name in FIELDS if name != "activation_function"),
        supported={
            "activation_function": tuple(ACTIVATIONS),
            "scale_attn_weights": (True,),
            "scale_attn_by_inverse_layer_idx": (False,),
            "is_decoder": (False, True),
        },
        ignored={
            "padding is masked": ("pad_token_id",),
            "heads, which are tensors of their own": (
                *("summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels"),
                "summary_first_dropout",
            ),
            "the same numbers, computed or returned in another way": ("reorder_and_upcast_attn",),
            "no model of Transformers reads it": ("n_ctx",),
        },
    ),
    defaults={
        "embedding_dropout_rate": 0.1,
        "attention_dropout_rate": 0.1,
        "residual_dropout_rate": 0.1,
        "tie_embeddings": True,
    },
    fixed={"use_bias": True},
    end="<|endoftext|>",
)
