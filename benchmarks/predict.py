"""`jaxnlp predict` over 2,000 sentences of Python's documentation with the BERT of `bert_finetune`, without printing.

From texts to classes: with tokenization, batching, padding and the forward pass.
"""

import functools
from typing import Any

import numpy as np

from benchmarks.bert_finetune import CLASSES, CONFIG, DROPOUT, HEADS, LAYERS, POSITIONS, WIDTH
from benchmarks.case import Case, Step
from data.readers.documents import python_documents
from jaxnlp.targets import OneClass
from jaxnlp.text.classifier_processor import TextClassifierProcessor, one_part
from jaxnlp.text.wordpiece import WordPieceVocabulary

SENTENCES, VOCABULARY, BATCH = 2_000, 4_000, 32


@functools.cache
def sentences() -> tuple[str, ...]:
    """The first 2,000 sentences."""
    return tuple(sentence for document in python_documents() for sentence in document)[:SENTENCES]


def processor() -> TextClassifierProcessor:
    """The tokenizer of both implementations, from the library `tokenizers`."""
    vocabulary = WordPieceVocabulary.of_texts(sentences(), VOCABULARY)
    return TextClassifierProcessor(vocabulary, POSITIONS, one_part(OneClass(tuple(map(str, range(CLASSES))))))


def ours() -> Step:
    import jax

    from jaxnlp.tasks import Trained
    from jaxnlp.tasks.classification import Classification
    from jaxnlp.tasks.classification.inputs import CommandInputs, given_rows, read_chunk
    from jaxnlp.tasks.classification.predict import Predictor

    reader = processor()
    model = CONFIG.build(reader)
    shapes = CONFIG.inputs(reader)
    params = model.init(jax.random.key(0), *(np.zeros(shape.shape, shape.dtype) for shape in shapes))["params"]
    predict = Predictor(Trained(Classification(), model, params, reader), "")

    def step() -> list[str]:
        rows = given_rows(reader, CommandInputs(sentences()))
        return [one.label for chunk in rows for one in predict(read_chunk(reader, chunk))]

    return step


def theirs(*, fused: bool, bfloat16: bool) -> Step:
    """As in courses: batches in the order of the texts, each padded to its longest text."""
    import torch

    from benchmarks.torch_bert import TorchBert

    reader = processor()
    size = reader.vocabulary_size
    model = TorchBert(size, WIDTH, HEADS, LAYERS, POSITIONS, CLASSES, DROPOUT, fused=fused).eval()

    @torch.no_grad()
    def step() -> list[int]:
        found: list[int] = []
        for start in range(0, SENTENCES, BATCH):
            texts = sentences()[start : start + BATCH]
            tokens = [torch.tensor(ids).long() for ids in reader.tokenize([(text,) for text in texts]).tokens]
            padded: Any = torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bfloat16):
                logits = model(padded, torch.tensor([len(ids) for ids in tokens]))
            found += logits.argmax(dim=-1).tolist()
        return found

    return step


def cases() -> list[Case]:
    opponents = {
        "eager_f32": functools.partial(theirs, fused=False, bfloat16=False),
        "eager_fused": functools.partial(theirs, fused=True, bfloat16=False),
        "eager_bf16": functools.partial(theirs, fused=True, bfloat16=True),
    }
    return [Case("predict", {"ours": ours, **opponents})]
