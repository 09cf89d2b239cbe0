"""A tiny BERT of Transformers, for tests of pretrained weights."""

from jaxnlp.text.wordpiece import SPECIAL

PIECES = [*SPECIAL, "the", "cat", "sat", "##s", "on", "mat", "."]
SETTINGS = {
    "vocab_size": len(PIECES),
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
}
