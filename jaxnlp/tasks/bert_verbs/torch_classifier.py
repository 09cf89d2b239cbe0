"""A PyTorch program for exported weights: a classifier with a pooling that no class of Transformers has."""

import re
from collections.abc import Mapping
from typing import Any

from jaxnlp.convert.encoders import families
from jaxnlp.convert.pretrained_encoder import OF_TEXTS
from jaxnlp.models.bert_classifier import BertClassifierConfig
from jaxnlp.models.text_vectors import Pooling
from jaxnlp.targets import Number, Targets
from jaxnlp.tasks import Trained

PROGRAM_FILE = "classify.py"

_POOLING: Mapping[Pooling, str] = {
    "cls": "hidden[:, 0]",
    "mean": "(hidden * mask).sum(dim=1) / mask.sum(dim=1)",
    "max": "hidden.masked_fill(mask == 0, -torch.inf).amax(dim=1)",
    "mean_sqrt_len_tokens": "(hidden * mask).sum(dim=1) / mask.sum(dim=1).sqrt()",
    "weightedmean": "(hidden * mask * positions).sum(dim=1) / (mask * positions).sum(dim=1)",
    "lasttoken": "hidden[torch.arange(len(hidden)), (mask * positions).argmax(dim=1)[:, 0]]",
}
_PROGRAM = '''"""The classifier of this folder in PyTorch: python classify.py {usage}

Also: transformers.pipeline("text-classification", FOLDER, truncation=True, trust_remote_code=True)
"""

import functools
import pathlib
import sys

import torch
import transformers
from transformers.modeling_outputs import SequenceClassifierOutput

NAMES = {names}


class {prefix}ForSequenceClassification(transformers.{prefix}PreTrainedModel):
    """Transformers' class of this name with another vector of a text."""

    _keys_to_ignore_on_load_unexpected = {barriers}

    def __init__(self, config):
        super().__init__(config)
        self.{base} = transformers.{prefix}Model(config{pooler})
        self.dropout = torch.nn.Dropout(config.{rate})
        self.classifier = torch.nn.Linear(config.hidden_size, config.num_labels)
        # Transformers' class refuses a bias of this shape. It would compute another vector.
        self.classifier.bias = torch.nn.Parameter(torch.zeros(1, config.num_labels))
        self.post_init()

    def forward(self, input_ids, attention_mask=None, token_type_ids=None, **others):
        hidden = self.{base}({inputs}, **others).last_hidden_state
        mask = (torch.ones_like(input_ids) if attention_mask is None else attention_mask)[..., None]
        positions = torch.arange(1, hidden.shape[1] + 1, device=hidden.device)[:, None]
        vectors = self.dropout({pooling})
        return SequenceClassifierOutput(logits=vectors @ self.classifier.weight.T + self.classifier.bias)


@functools.cache
def loaded():
    folder = pathlib.Path(__file__).parent
    model = {prefix}ForSequenceClassification.from_pretrained(folder).eval()
    return transformers.AutoTokenizer.from_pretrained(folder), model


@torch.no_grad()
def classify({columns}):
    """{returns} NaN for a blank text."""
    tokenizer, model = loaded()
    batch = tokenizer({columns}, padding=True, truncation=True, max_length={max_length}, return_tensors="pt")
    scores = model(**batch).logits
    scores[[not all(map(str.strip, row)) for row in zip({columns})]] = torch.nan
    return {values}


if __name__ == "__main__":
    words = sys.argv[1:]
    if not words or len(words) % {texts}:
        sys.exit('usage: python classify.py {usage}')
    columns = [words[place::{texts}] for place in range({texts})]
    for *shown, row in zip(*columns, classify(*columns)):
        answer = ({shown},)
        print(*([""] * len(answer) if row.isnan().any() else answer), *shown, sep="\\t")
'''
_USAGE = {1: '"A text." "Another."', 2: '"A text." "Its pair." "Another." "Its pair."'}


def torch_classifier(trained: Trained, max_length: int) -> str | None:
    """The program of a model with one head and another pooling than `pooler`; None for other models.

    Args:
      trained: a model with a BERT.
      max_length: of texts in tokens.
    """
    config: Any = trained.model.config
    if not isinstance(config, BertClassifierConfig) or config.pooling not in _POOLING:
        return None
    head = config.only_head(trained.processor)
    if head is None:
        return None
    family = families()[config.encoder.model_type]
    return _PROGRAM.format(
        pooling=_POOLING[config.pooling],
        prefix=family.prefix,
        base=family.base,
        barriers=[re.escape(name) for name in family.barriers],
        rate=family.dropout[OF_TEXTS.name],
        pooler=f", add_pooling_layer={config.encoder.use_pooler}" if family.pools else "",
        inputs=f"input_ids, attention_mask{', token_type_ids' if family.reads_segments else ''}",
        max_length=max_length,
        names=list(head.targets.names),
        texts=head.texts,
        columns="texts, pairs" if head.texts == 2 else "texts",
        usage=_USAGE[head.texts],
        **_meaning(head.targets),
    )


def _meaning(targets: Targets) -> dict[str, str]:
    """The program's code for scores and for printing a row."""
    if isinstance(targets, Number):
        return {
            "returns": f"The numbers [N, 1], from {targets.lowest} to {targets.highest}.",
            "values": f"scores.clamp({targets.lowest}, {targets.highest})",
            "shown": 'f"{row.item():.4g}"',
        }
    if targets.problem == "multi_label_classification":
        return {
            "returns": "The probabilities [N, C] of the classes NAMES, each by itself.",
            "values": "torch.sigmoid(scores)",
            "shown": '", ".join(name for name, share in zip(NAMES, row) if share >= 0.5)',
        }
    return {
        "returns": "The probabilities [N, C] of the classes NAMES.",
        "values": "torch.softmax(scores, dim=-1)",
        "shown": 'NAMES[row.argmax()], f"{row.max():.2f}"',
    }
