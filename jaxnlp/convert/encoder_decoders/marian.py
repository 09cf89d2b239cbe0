"""Marian, as Transformers stores it: BART's layers, sines as positions, and no normalised embeddings. Sources and
targets may have separate tables of embeddings.

Differs in training: no dropout inside feed-forward layers, no layer is skipped, and the embedding of padding, which is
also the start symbol, gets the whole gradient.
"""

from jaxnlp.convert.encoder_decoders.bart import APPLIED, FIXED, IGNORED, SUPPORTED
from jaxnlp.convert.encoder_decoders.bart import FAMILY as BART
from jaxnlp.convert.settings import model_settings
from jaxnlp.text.marian_tokenizer import MarianTokenizer

FAMILY = BART._replace(
    title="Marian",
    architecture="MarianMTModel",
    encoder=BART.encoder._replace(embedding_norm=""),
    decoder=BART.decoder._replace(embedding_norm=""),
    rules=model_settings(
        "marian",
        applied=(*APPLIED, "bad_words_ids", "decoder_vocab_size", "share_encoder_decoder_embeddings"),
        supported={**SUPPORTED, "normalize_embedding": (False,), "static_position_embeddings": (True,)},
        ignored={**IGNORED, "sines are computed": ("extra_pos_embeddings",)},
    ),
    fixed={**FIXED, "positions": "sinusoidal", "sines_first": True, "embedding_norm": False},
    mask_is_optional=False,
    two_tables=True,
    special={"pad_token_id": 58100, "eos_token_id": 0, "decoder_start_token_id": 58100},
    tokenizer=MarianTokenizer,
)
