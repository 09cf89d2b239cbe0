"""BART, as Transformers stores it: layers that are normalised after each sum, and positions that start at row 2.

Differs in training: no dropout inside feed-forward layers, and no layer is skipped.
"""

from jaxnlp.convert.encoder_decoders import EncoderDecoderFamily, StackNames
from jaxnlp.convert.settings import model_settings
from jaxnlp.convert.tensors import BlockNames, CrossNames

FIELDS = {
    "encoder_layers": "num_layers",
    "decoder_layers": "num_decoder_layers",
    "encoder_attention_heads": "num_heads",
    "decoder_attention_heads": "num_heads",
    "encoder_ffn_dim": "feed_forward_width",
    "decoder_ffn_dim": "feed_forward_width",
    "d_model": "width",
    "max_position_embeddings": "context_length",
    "activation_function": "feed_forward",
    "scale_embedding": "scale_embeddings",
    "dropout": "dropout_rate",
    "attention_dropout": "attention_dropout_rate",
}
ACTIVATIONS = {
    "gelu": ("gelu", False),
    "relu": ("relu", False),
    "gelu_new": ("gelu_tanh", False),
    "silu": ("silu", False),
    "swish": ("silu", False),
}
ALIASES = {"hidden_size": "width", "num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"}
APPLIED = (
    *(name for name in FIELDS if name != "activation_function"),
    *ALIASES,
    *("tie_word_embeddings", "pad_token_id", "eos_token_id", "decoder_start_token_id"),
    *("forced_bos_token_id", "forced_eos_token_id"),
)
SUPPORTED = {
    "activation_function": tuple(ACTIVATIONS),
    "is_encoder_decoder": (True,),
    **dict.fromkeys(("normalize_before", "add_final_layer_norm", "add_bias_logits"), (False,)),
}
IGNORED = {
    "training and its first parameters": (
        *("init_std", "activation_dropout", "encoder_layerdrop", "decoder_layerdrop"),
    ),
    "heads, which are tensors of their own": ("classifier_dropout", "classif_dropout"),
}
FIXED = {"norm": "post", "normalization": "layer", "epsilon": 1e-5, "use_bias": True, "scale_attention": True}


def _stack(side: str, cross: CrossNames | None) -> StackNames:
    return StackNames(
        blocks=BlockNames(
            block=f"{side}.layers.{{}}.",
            qkv=tuple(f"self_attn.{name}_proj" for name in "qkv"),
            attention="self_attn.out_proj",
            attention_norm="self_attn_layer_norm",
            up="fc1",
            down="fc2",
            feed_forward_norm="final_layer_norm",
            cross=cross,
        ),
        up="fc1",
        positions=f"{side}.embed_positions",
        embedding_norm=f"{side}.layernorm_embedding",
    )


FAMILY = EncoderDecoderFamily(
    title="BART",
    architecture="BartForConditionalGeneration",
    tokens="shared",
    copies=("encoder.embed_tokens", "decoder.embed_tokens"),
    head="lm_head",
    encoder=_stack("encoder", None),
    decoder=_stack(
        "decoder",
        CrossNames(
            q="encoder_attn.q_proj",
            kv=("encoder_attn.k_proj", "encoder_attn.v_proj"),
            out="encoder_attn.out_proj",
            norm="encoder_attn_layer_norm",
        ),
    ),
    buffers=("encoder.version", "decoder.version"),
    fields=FIELDS,
    values={"activation_function": ACTIVATIONS},
    rules=model_settings(
        "bart",
        applied=APPLIED,
        supported={
            **SUPPORTED,
            "normalize_embedding": (True,),
            "static_position_embeddings": (False,),
            "extra_pos_embeddings": (2,),
        },
        ignored={
            **IGNORED,
            "no model of Transformers reads it": ("force_bos_token_to_be_generated", "save_step"),
        },
    ),
    defaults={
        **{"context_length": 1024, "feed_forward": ("gelu", False), "scale_embeddings": False},
        **{"dropout_rate": 0.1, "attention_dropout_rate": 0.0},
    },
    fixed={**FIXED, "positions": "learned", "position_offset": 2, "embedding_norm": True},
    scales_logits=False,
    prefix="model.",
    output_bias="final_logits_bias",
    separates_copies=True,
    mask_is_optional=True,
    aliases=ALIASES,
    special={"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2},
)
