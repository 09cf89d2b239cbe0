"""Qwen2 and Qwen2.5: Llama with biases on queries, keys and values."""

from jaxnlp.convert.decoders.llama import APPLIED, FIELDS
from jaxnlp.convert.decoders.llama import FAMILY as LLAMA
from jaxnlp.convert.settings import model_settings
from jaxnlp.convert.sliding_windows import OF_LAYERS

_FIELDS = {theirs: ours for theirs, ours in FIELDS.items() if theirs != "head_dim"}
SUPPORTED = {"hidden_act": ("silu",)}
IGNORED = {"padding is masked": ("pad_token_id",)}

FAMILY = LLAMA._replace(
    title="Qwen2",
    architecture="Qwen2ForCausalLM",
    fields=_FIELDS,
    rules=model_settings(
        "qwen2",
        applied=(*(name for name in APPLIED if name != "head_dim"), *OF_LAYERS),
        supported={**SUPPORTED, "use_mrope": (False,)},
        ignored=IGNORED,
    ),
    defaults={"feed_forward_width": 22_016, "num_key_heads": 32, "epsilon": 1e-6, "tie_embeddings": False},
    fixed={
        "use_bias": False,
        "gated": True,
        "logit_cap": None,
        "qkv_bias": True,
        "head_norm": False,
        "head_width": None,
    },
    end="<|endoftext|>",
    windows="some",
)
