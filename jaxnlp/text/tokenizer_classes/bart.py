"""BART's tokenizer: that of RoBERTa."""

from jaxnlp.text.tokenizer_classes.roberta import CLASS as ROBERTA

CLASS = ROBERTA._replace(names=("BartTokenizer", "BartTokenizerFast"), model_types=("bart",))
