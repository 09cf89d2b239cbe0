"""DistilBERT's tokenizer: BERT's, without segments."""

from jaxnlp.text.tokenizer_classes.bert import CLASS as BERT

CLASS = BERT._replace(names=("DistilBertTokenizer", "DistilBertTokenizerFast"), model_types=(), segments=False)
