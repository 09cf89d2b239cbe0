"""Rules for each setting of a model's files, as Transformers and sentence-transformers write them.

The settings of one family are in `jaxnlp.convert.encoders`, `decoders`, `encoder_decoders` or `image_encoders`; of
tokenizers in `jaxnlp.text.tokenizer_files`; of image processors in `jaxnlp.convert.image_processors`.
"""

from collections.abc import Mapping
from typing import Any

from jaxnlp.text.foreign_settings import ForeignSettings


def model_settings(
    model_type: str,
    *,
    applied: tuple[str, ...],
    supported: Mapping[str, tuple[Any, ...]],
    ignored: Mapping[str, tuple[str, ...]],
    texts: bool = True,
) -> ForeignSettings:
    """Rules for a model's config.json.

    Args:
      model_type: of Transformers.
      applied, supported, ignored: its own rules, as in `ForeignSettings`, which precede those of all models.
      texts: whether it reads texts, and has a vocabulary.
    """
    own = {*applied, *supported}
    common = {reason: tuple(name for name in names if name not in own) for reason, names in _IGNORED.items()}
    return ForeignSettings(
        applied=(*applied, *(("vocab_size", "tokenizer_class") if texts else ())),
        supported={"model_type": (model_type,), **_SUPPORTED, **supported},
        ignored={reason: (*common.get(reason, ()), *ignored.get(reason, ())) for reason in {**common, **ignored}},
    )


def of_model_type(rules: ForeignSettings, model_type: str) -> ForeignSettings:
    """The rules for another model type with the same settings."""
    return rules._replace(supported={**rules.supported, "model_type": (model_type,)})


_SUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "is_encoder_decoder": (False,),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
}
_IGNORED = {
    "training and its first parameters": ("initializer_range", "gradient_checkpointing"),
    "heads, which are tensors of their own": (
        *("architectures", "id2label", "label2id", "num_labels", "_num_labels", "problem_type"),
        *("finetuning_task", "task_specific_params", "sentence_transformers"),
        "sbert_ce_default_activation_function",
    ),
    "the output layer is compared with the embedding": ("tie_word_embeddings",),
    "the same numbers, computed or returned in another way": (
        *("chunk_size_feed_forward", "output_attentions", "output_hidden_states", "return_dict", "use_return_dict"),
        *("torchscript", "attn_implementation", "_attn_implementation", "_attn_implementation_autoset"),
        *("_attn_implementation_internal", "experts_implementation", "_experts_implementation_internal"),
    ),
    "tensors have types of their own": ("dtype", "torch_dtype", "use_bfloat16"),
    "decoders": ("use_cache", "cross_attention_hidden_size", "tie_encoder_decoder", "output_past"),
    "generated texts": (
        *("bos_token_id", "eos_token_id", "sep_token_id", "decoder_start_token_id", "prefix", "max_length"),
        *("min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty"),
        *("temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty"),
        *("no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences"),
        *("output_scores", "return_dict_in_generate", "forced_bos_token_id", "forced_eos_token_id"),
        *("remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens"),
        "begin_suppress_tokens",
    ),
    "no model of Transformers reads it": (
        *("tf_legacy_loss", "language", "name", "transformers.js_config", "unsloth_fixed", "unsloth_version"),
    ),
    "where the files came from": ("_name_or_path", "name_or_path", "_commit_hash", "transformers_version"),
}

GENERATION_SETTINGS = ForeignSettings(
    applied=(
        *("forced_bos_token_id", "forced_eos_token_id", "bad_words_ids"),
        *("min_length", "min_new_tokens", "renormalize_logits"),
        *("decoder_start_token_id", "bos_token_id", "eos_token_id"),
    ),
    supported={
        **dict.fromkeys(
            (
                *("begin_suppress_tokens", "constraints", "encoder_repetition_penalty"),
                *("exponential_decay_length_penalty", "force_words_ids", "sequence_bias", "stop_strings"),
                *("suppress_tokens", "watermarking_config"),
            ),
            (None,),
        ),
        **dict.fromkeys(("repetition_penalty", "guidance_scale"), (None, 1, 1.0)),
        "encoder_no_repeat_ngram_size": (None, 0),
    },
    ignored={
        "options of the search, which the caller gives": (
            *("num_beams", "num_beam_groups", "diversity_penalty", "length_penalty", "early_stopping"),
            *("no_repeat_ngram_size", "max_length", "max_new_tokens", "max_time"),
            *("num_return_sequences", "remove_invalid_values"),
        ),
        "options of sampling": (
            *("do_sample", "temperature", "top_k", "top_p", "top_h", "min_p", "typical_p", "epsilon_cutoff"),
            *("eta_cutoff", "penalty_alpha", "dola_layers", "low_memory"),
        ),
        "config.json has it": ("pad_token_id",),
        "the same tokens, computed or returned in another way": (
            *("use_cache", "cache_config", "cache_implementation", "compile_config", "continuous_batching_config"),
            *("disable_compile", "max_cache_len", "prefill_chunk_size", "return_dict_in_generate", "token_healing"),
            *("output_attentions", "output_hidden_states", "output_logits", "output_scores", "use_mtp"),
            *("assistant_confidence_threshold", "assistant_early_exit", "assistant_ensemble_weight"),
            *("assistant_lookbehind", "is_assistant", "max_matching_ngram_size", "num_assistant_tokens"),
            *("num_assistant_tokens_schedule", "prompt_lookup_num_tokens", "speculation_type", "target_lookbehind"),
        ),
        "where the files came from": ("_from_model_config", "transformers_version", "_commit_hash"),
    },
)
"""generation_config.json of an encoder-decoder."""

TRANSFORMER = ForeignSettings(
    applied=("max_seq_length", "do_lower_case"),
    supported={
        "transformer_task": ("feature-extraction", "sequence-classification"),
        "modality_config": tuple(
            {"text": {"method": "forward", "method_output_name": name}} for name in ("last_hidden_state", "logits")
        ),
        "module_output_name": ("token_embeddings", "scores"),
        "tokenizer_name_or_path": (None,),
        **dict.fromkeys(("query_length", "document_length", "query_expansion"), (None,)),
        **dict.fromkeys(
            (
                *("processing_kwargs", "model_kwargs", "processor_kwargs", "config_kwargs"),
                *("model_args", "tokenizer_args", "config_args"),
            ),
            ({}, None),
        ),
    },
    ignored={"the same numbers, computed in another way": ("unpad_inputs", "backend")},
)
"""sentence_bert_config.json."""

_FEATURES = {"method_output_name": "pooler_output"}
CLIP_MODULE = TRANSFORMER._replace(
    supported={
        **TRANSFORMER.supported,
        "transformer_task": ("feature-extraction",),
        "modality_config": ({name: {"method": f"get_{name}_features", **_FEATURES} for name in ("text", "image")},),
        "module_output_name": ("sentence_embedding",),
    }
)
"""The same file of a CLIP."""

POOLING_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""The older spelling of each pooling, in the order of concatenation."""

POOLING = ForeignSettings(
    applied=("pooling_mode", *POOLING_MODES, "include_prompt"),
    supported={},
    ignored={"it is the encoder's width": ("word_embedding_dimension", "embedding_dimension")},
)
"""config.json of the module Pooling."""

NORMALIZE = ForeignSettings(
    applied=(),
    supported=dict.fromkeys(("module_input_name", "module_output_name"), ("sentence_embedding",)),
    ignored={},
)
"""config.json of the module Normalize."""

MODULE = ForeignSettings(
    applied=("path", "type"),
    supported={},
    ignored={"names": ("idx", "name"), "arguments that callers may give": ("kwargs",)},
)
"""An entry of modules.json."""

SENTENCE_MODEL = ForeignSettings(
    applied=("prompts", "default_prompt_name", "truncate_dim", "similarity_fn_name", "activation_fn"),
    supported={"model_type": ("SentenceTransformer", "CrossEncoder")},
    ignored={"versions": ("__version__", "requirements")},
)
"""config_sentence_transformers.json."""

REFUSED_FILES = {
    "adapter_config.json": "an adapter that changes the weights; move it into a folder of its own, and give that",
    "processor_config.json": "a processor of other or several kinds of inputs",
    "preprocessor_config.json": "a processor of other inputs than texts",
    "video_preprocessor_config.json": "a processor of other or several kinds of inputs",
}
"""Files that change what a model computes, of adapters and of images; only some readers accept them."""
