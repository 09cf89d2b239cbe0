"""`jaxnlp export` of models that find answers in a text, and reading the models of Transformers."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxnlp.convert import PretrainedError, exported_task, pretrained_types, read_pretrained, save_pretrained
from jaxnlp.convert.folders import EXPORTED
from jaxnlp.convert.pretrained_encoder import OF_SPANS, Classifier, Pretrained, architecture, head_prefix
from jaxnlp.models.extractive_qa import HEAD, BertSpanConfig
from jaxnlp.nn.compute import EXACT
from jaxnlp.tasks import Task, Trained, pretrained_model
from jaxnlp.tasks.bert_verbs.exported import ExportedHead, description, read_exported, read_head
from jaxnlp.tasks.bert_verbs.word_export import encoder_of_tokens
from jaxnlp.tasks.export import ExportCommand, without_class
from jaxnlp.text.question_contexts import QuestionProcessor

CLASSES = OF_SPANS.classes()
"""The families, by their classes for question answering in Transformers."""


@dataclasses.dataclass(frozen=True)
class ExportSpans(ExportCommand):
    """Writes a BERT that finds answers as a directory that Hugging Face Transformers reads: a BertForQuestionAnswering
    with its tokenizer. `jaxnlp.load_pretrained` and the verbs read it back."""

    def write_transformers(self, trained: Trained) -> None:
        config: Any = trained.model.config
        if not isinstance(config, BertSpanConfig):
            raise without_class(trained)
        params = jax.tree.map(np.asarray, dict(trained.params))
        shape, encoder = encoder_of_tokens(config.encoder, params["encoder"])
        config = dataclasses.replace(config, encoder=shape)
        processor: QuestionProcessor = trained.processor
        head = Classifier(params[HEAD]["kernel"], params[HEAD]["bias"], 0.0, (), head=OF_SPANS)
        save_pretrained(
            self.folder,
            Pretrained(config.encoder, encoder, None, processor.vocabulary, max_length=processor.max_length),
            classifier=head,
            further_files={EXPORTED: description(trained, config, ExportedHead(HEAD, head_prefix(shape, head)))},
        )
        name = architecture(config.encoder, None, head)
        print(f"{self.folder}: transformers.{name}.from_pretrained reads it, and jaxnlp")


def from_pretrained(task: Task, path: str | Path, *, ignore: tuple[str, ...] = ()) -> Trained:
    """A BertForQuestionAnswering, from `ExportSpans`, or from Transformers with windows of its length.

    Raises: PretrainedError, WeightsError as `read_pretrained`.
    """
    if exported_task(path) is not None:
        return read_exported(path, ignore=ignore)
    family = CLASSES[pretrained_types(path)[0]]
    pretrained = read_pretrained(path, ignore=(*ignore, family.answers))
    longest = min(pretrained.longest, 384)
    processor = QuestionProcessor(pretrained.vocabulary, longest, QuestionProcessor.max_overlap(longest) // 2)
    head = read_head(path, ExportedHead(HEAD, family.answers))
    if (outputs := head[HEAD]["bias"].size) != 2:
        raise PretrainedError(f"{path}: expected 2 outputs of {family.answers[:-1]}, got {outputs}")
    config = BertSpanConfig(encoder=pretrained.config.of_tokens(), compute=EXACT)
    return pretrained_model(task, config, {"encoder": pretrained.params} | head, processor, str(path))
