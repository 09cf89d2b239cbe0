"""T5, as Transformers stores it: matrices [outputs, inputs], without biases, and one relative bias for each side."""

from jaxnlp.convert.encoder_decoders import EncoderDecoderFamily, StackNames
from jaxnlp.convert.settings import model_settings
from jaxnlp.convert.tensors import BlockNames, CrossNames

FIELDS = {
    "num_layers": "num_layers",
    "num_decoder_layers": "num_decoder_layers",
    "num_heads": "num_heads",
    "d_kv": "head_width",
    "d_model": "width",
    "d_ff": "feed_forward_width",
    "n_positions": "context_length",
    "feed_forward_proj": "feed_forward",
    "relative_attention_num_buckets": "num_buckets",
    "relative_attention_max_distance": "max_distance",
    "layer_norm_epsilon": "epsilon",
    "dropout_rate": "dropout_rate",
}
FEED_FORWARD = {
    "relu": ("relu", False),
    "gated-gelu": ("gelu_tanh", True),
    "gelu": ("gelu", False),
    "gelu_new": ("gelu_tanh", False),
    "gated-relu": ("relu", True),
    "gated-gelu_new": ("gelu_tanh", True),
}
_READ = "layer.1.EncDecAttention"


def _stack(side: str, last: int, cross: CrossNames | None) -> StackNames:
    dense = f"layer.{last}.DenseReluDense"
    return StackNames(
        blocks=BlockNames(
            block=f"{side}.block.{{}}.",
            qkv=tuple(f"layer.0.SelfAttention.{name}" for name in "qkv"),
            attention="layer.0.SelfAttention.o",
            attention_norm="layer.0.layer_norm",
            up=f"{dense}.wi_1",
            down=f"{dense}.wo",
            feed_forward_norm=f"layer.{last}.layer_norm",
            gate=f"{dense}.wi_0",
            cross=cross,
        ),
        up=f"{dense}.wi",
        relative_bias=f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias",
        norm=f"{side}.final_layer_norm",
    )


FAMILY = EncoderDecoderFamily(
    title="T5",
    architecture="T5ForConditionalGeneration",
    tokens="shared",
    copies=("encoder.embed_tokens", "decoder.embed_tokens"),
    head="lm_head",
    encoder=_stack("encoder", 1, None),
    decoder=_stack(
        "decoder",
        2,
        CrossNames(q=f"{_READ}.q", kv=(f"{_READ}.k", f"{_READ}.v"), out=f"{_READ}.o", norm="layer.1.layer_norm"),
    ),
    buffers=(f"decoder.block.0.{_READ}.relative_attention_bias.weight",),
    fields=FIELDS,
    values={"feed_forward_proj": FEED_FORWARD},
    rules=model_settings(
        "t5",
        applied=(
            *(name for name in FIELDS if name != "feed_forward_proj"),
            *("tie_word_embeddings", "scale_decoder_outputs", "dense_act_fn", "is_gated_act"),
            *("pad_token_id", "eos_token_id", "decoder_start_token_id"),
        ),
        supported={"feed_forward_proj": tuple(FEED_FORWARD), "is_encoder_decoder": (True,)},
        ignored={
            "training and its first parameters": ("initializer_factor",),
            "heads, which are tensors of their own": ("classifier_dropout",),
        },
    ),
    defaults={
        **{"num_buckets": 32, "max_distance": 128, "epsilon": 1e-6, "dropout_rate": 0.1, "context_length": 512},
        "feed_forward": ("relu", False),
    },
    fixed={
        **{"norm": "pre", "normalization": "rms", "use_bias": False, "positions": "shared_relative_bias"},
        **{"scale_attention": False, "scale_embeddings": False},
        **{"embedding_norm": False, "output_bias": False},
    },
    scales_logits=True,
)
