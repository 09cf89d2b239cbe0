"""DistilBERT, as Transformers stores it: a BERT without segments.

Its classifier has a pooler of its own, with ReLU. Differs in training: sinusoidal positions are trained, too.
"""

from jaxnlp.convert.encoders import EncoderFamily, EncoderNames
from jaxnlp.convert.encoders.bert import FIXED
from jaxnlp.convert.settings import model_settings
from jaxnlp.convert.tensors import BlockNames

FIELDS = {
    "n_layers": "num_layers",
    "n_heads": "num_heads",
    "dim": "width",
    "hidden_dim": "feed_forward_width",
    "max_position_embeddings": "max_positions",
    "dropout": "dropout_rate",
    "attention_dropout": "attention_dropout_rate",
}

FAMILY = EncoderFamily(
    title="DistilBERT",
    prefix="DistilBert",
    base="distilbert",
    outside=("vocab_", "pre_classifier.", "classifier."),
    names=EncoderNames(
        tokens="embeddings.word_embeddings",
        positions="embeddings.position_embeddings",
        segments=None,
        embedding_norm="embeddings.LayerNorm",
        blocks=BlockNames(
            block="transformer.layer.{}.",
            qkv=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
            attention="attention.out_lin",
            attention_norm="sa_layer_norm",
            up="ffn.lin1",
            down="ffn.lin2",
            feed_forward_norm="output_layer_norm",
        ),
        pooler="pre_classifier",
        transform="vocab_transform",
        norm="vocab_layer_norm",
        token_bias="vocab_projector.bias",
        output="vocab_projector",
        follows=None,
        projection="",
        replaced=None,
    ),
    fields=FIELDS,
    rules=model_settings(
        "distilbert",
        applied=tuple(FIELDS),
        supported={"activation": ("gelu",)},
        ignored={
            "padding is masked": ("pad_token_id",),
            "heads, which are tensors of their own": ("seq_classif_dropout", "qa_dropout"),
            "the positions are tensors": ("sinusoidal_pos_embds",),
            "the output layer is compared with the embedding": ("tie_weights_",),
        },
    ),
    fixed={**FIXED, "pooler_activation": "relu", "num_segments": 0, "padding_id": None, "epsilon": 1e-12},
    classifier="classifier.",
    classifier_pooler="pre_classifier",
    dropout={"ForSequenceClassification": "seq_classif_dropout", "ForQuestionAnswering": "qa_dropout"},
    reads_segments=False,
)
