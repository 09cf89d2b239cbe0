"""Mistral: Llama whose layers may see only a window of the last tokens."""

from jaxnlp.convert.decoders.llama import APPLIED
from jaxnlp.convert.decoders.llama import FAMILY as LLAMA
from jaxnlp.convert.settings import model_settings
from jaxnlp.convert.sliding_windows import OF_MODEL

FAMILY = LLAMA._replace(
    title="Mistral",
    architecture="MistralForCausalLM",
    rules=model_settings(
        "mistral",
        applied=(*APPLIED, *OF_MODEL),
        supported={"hidden_act": ("silu",)},
        ignored={"padding is masked": ("pad_token_id",)},
    ),
    defaults={"feed_forward_width": 14_336, "num_key_heads": 8, "epsilon": 1e-6, "tie_embeddings": False},
    fixed={name: value for name, value in LLAMA.fixed.items() if name != "local_layers"},
    windows="all",
)
