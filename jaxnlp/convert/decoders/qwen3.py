"""Qwen3: Llama that normalises each head's queries and keys."""

from jaxnlp.convert.decoders.llama import APPLIED, BLOCKS, FIELDS
from jaxnlp.convert.decoders.qwen2 import FAMILY as QWEN2
from jaxnlp.convert.decoders.qwen2 import IGNORED, SUPPORTED
from jaxnlp.convert.settings import model_settings
from jaxnlp.convert.sliding_windows import OF_LAYERS

FAMILY = QWEN2._replace(
    title="Qwen3",
    architecture="Qwen3ForCausalLM",
    names=QWEN2.names._replace(blocks=BLOCKS._replace(head_norms=("self_attn.q_norm", "self_attn.k_norm"))),
    fields=FIELDS,
    rules=model_settings(
        "qwen3",
        applied=(*APPLIED, *OF_LAYERS),
        supported={**SUPPORTED, "attention_bias": (False,)},
        ignored=IGNORED,
    ),
    defaults={**QWEN2.defaults, "head_width": 128},
    fixed={"use_bias": False, "gated": True, "logit_cap": None, "qkv_bias": False, "head_norm": True},
)
