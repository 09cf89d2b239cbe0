"""Llama, as Transformers stores it: matrices [outputs, inputs], without biases. TinyLlama and SmolLM2 are Llamas."""

from jaxnlp.convert.decoders import DecoderFamily, DecoderNames
from jaxnlp.convert.rotary import SETTINGS
from jaxnlp.convert.settings import model_settings
from jaxnlp.convert.tensors import BlockNames
from jaxnlp.models.llama import LlamaConfig

FIELDS = {
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "num_key_value_heads": "num_key_heads",
    "head_dim": "head_width",
    "hidden_size": "width",
    "intermediate_size": "feed_forward_width",
    "max_position_embeddings": "context_length",
    "hidden_act": "activation",
    "rms_norm_eps": "epsilon",
    "attention_dropout": "attention_dropout_rate",
    "tie_word_embeddings": "tie_embeddings",
}
APPLIED = (*(name for name in FIELDS if name != "hidden_act"), *SETTINGS)
BLOCKS = BlockNames(
    block="layers.{}.",
    qkv=tuple(f"self_attn.{name}_proj" for name in "qkv"),
    attention="self_attn.o_proj",
    attention_norm="input_layernorm",
    up="mlp.up_proj",
    down="mlp.down_proj",
    feed_forward_norm="post_attention_layernorm",
    gate="mlp.gate_proj",
)

FAMILY = DecoderFamily(
    title="Llama",
    config=LlamaConfig,
    architecture="LlamaForCausalLM",
    base="model",
    names=DecoderNames(
        tokens="embed_tokens",
        positions="",
        blocks=BLOCKS,
        norm="norm",
        head="lm_head",
        buffers=("self_attn.rotary_emb.inv_freq",),
    ),
    transposed=True,
    fields=FIELDS,
    values={"hidden_act": {"silu": "silu"}},
    rules=model_settings(
        "llama",
        applied=APPLIED,
        supported={
            **{"hidden_act": ("silu",), "attention_bias": (False,), "mlp_bias": (False,)},
            **{"is_llama_config": (True,), "rope_interleaved": (False,)},
        },
        ignored={
            "padding is masked": ("pad_token_id",),
            "the same numbers, computed or returned in another way": ("pretraining_tp",),
        },
    ),
    defaults={"feed_forward_width": 11_008, "epsilon": 1e-6, "tie_embeddings": False},
    fixed={
        "use_bias": False,
        "gated": True,
        "logit_cap": None,
        "qkv_bias": False,
        "head_norm": False,
        "local_layers": (),
    },
    end="</s>",
    rotary=True,
)
