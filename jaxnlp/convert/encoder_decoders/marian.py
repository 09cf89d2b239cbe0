"""Marian, as Transformers stores it: the layers of a BART, sines as positions, and no normalised embeddings. Sources
and targets may have tables of embeddings of their own.

Differs in training: no dropout inside feed-forward layers, no layer is left out, and the embedding of padding, which is
also the start symbol, gets the whole gradient.
"""

from jaxnlp.convert.encoder_decoders.bart import ACTIVATIONS, ALIASES, FIELDS
from jaxnlp.convert.encoder_decoders.bart import FAMILY as BART
from jaxnlp.convert.settings import model_settings
from jaxnlp.text.looked_up_pieces import LookedUpPieces

FAMILY = BART._replace(
    title="Marian",
    architecture="MarianMTModel",
    encoder=BART.encoder._replace(embedding_norm=""),
    decoder=BART.decoder._replace(embedding_norm=""),
    rules=model_settings(
        "marian",
        applied=(
            *(name for name in FIELDS if name != "activation_function"),
            *ALIASES,
            *("tie_word_embeddings", "pad_token_id", "eos_token_id", "decoder_start_token_id"),
            *("forced_bos_token_id", "forced_eos_token_id", "bad_words_ids", "decoder_vocab_size"),
            "share_encoder_decoder_embeddings",
        ),
        supported={
            "activation_function": tuple(ACTIVATIONS),
            "is_encoder_decoder": (True,),
            "normalize_before": (False,),
            "normalize_embedding": (False,),
            "add_final_layer_norm": (False,),
            "add_bias_logits": (False,),
            "static_position_embeddings": (True,),
        },
        ignored={
            "training and its first parameters": (
                *("init_std", "activation_dropout", "encoder_layerdrop", "decoder_layerdrop"),
            ),
            "heads, which are tensors of their own": ("classifier_dropout", "classif_dropout"),
            "sines are computed": ("extra_pos_embeddings",),
        },
    ),
    fixed={
        **{"norm": "post", "normalization": "layer", "epsilon": 1e-5, "use_bias": True, "scale_attention": True},
        **{"positions": "sinusoidal", "sines_first": True, "embedding_norm": False},
    },
    mask_is_optional=False,
    two_tables=True,
    special={"pad_token_id": 58100, "eos_token_id": 0, "decoder_start_token_id": 58100},
    tokenizer=LookedUpPieces,
)
