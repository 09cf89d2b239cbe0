"""`jaxnlp export` of taggers and parsers."""

import dataclasses
from typing import Any

import jax
import numpy as np

from jaxnlp.convert.folders import EXPORTED
from jaxnlp.convert.pretrained_encoder import OF_TOKENS, Classifier, Pretrained, architecture, save_pretrained
from jaxnlp.models.bert import BertConfig
from jaxnlp.models.tagger import HEAD, TaggerConfig, only_part
from jaxnlp.models.word_encoder import NAME, WordEncoderConfig
from jaxnlp.tasks import Trained
from jaxnlp.tasks.bert_verbs.exported import HEADS, ExportedHead, description, heads_file
from jaxnlp.tasks.export import ExportCommand, without_class
from jaxnlp.typing import Params


@dataclasses.dataclass(frozen=True)
class ExportWords(ExportCommand):
    """Writes the BERT of a tagger or a parser as a directory that Hugging Face Transformers reads, with its tokenizer.

    A tagger that is only a BERT, without CRF, recurrent layers, word embeddings and characters, becomes a
    BertForTokenClassification with its labels, or that of its family, such as RobertaForTokenClassification. A word has
    the scores of its first token. Of all other models the directory has the BERT; their other parameters are in
    heads.safetensors, since no class of Transformers has them. `jaxnlp.load_pretrained` and the verbs read back the
    whole model.
    """

    part: str | None = None
    """Write only one of several kinds of tags, such as upos."""

    def __call__(self, trained: Trained) -> None:
        super().__call__(trained if self.part is None else only_part(trained, self.part))

    def write_transformers(self, trained: Trained) -> None:
        pretrained, others = bert_of_words(trained)
        tagger = token_classifier_of(trained)
        config: Any = dataclasses.replace(trained.model.config, encoder=pretrained.config)
        head = tagger and ExportedHead(HEAD, tagger.head.prefix, names=tagger.names)
        further_files = {EXPORTED: description(trained, config, head)}
        if tagger is None:
            further_files[HEADS] = heads_file(config, others)
        save_pretrained(
            self.folder, pretrained, classifier=tagger, further_heads=tagger is None, further_files=further_files
        )
        name = architecture(pretrained.config, None, tagger)
        print(f"{self.folder}: transformers.{name}.from_pretrained reads it, and jaxnlp the whole model")
        if tagger is None:
            print(
                f"{self.folder / HEADS}: all other parameters: not part of any Transformers BERT class, so saved "
                "separately; kernels are [inputs, outputs], and the metadata has the model's config"
            )
        elif getattr(trained.task, "constrained", False) and trained.processor.has_entities:
            print(
                f"{self.folder}: Transformers takes the best label of each word; jaxnlp predict also respects the "
                f"{trained.processor.scheme} scheme"
            )


def bert_of_words(trained: Trained) -> tuple[Pretrained, Any]:
    """The BERT of a model of words, without an unused pooler; and all other parameters.

    Raises: ValueError for a model without a BERT.
    """
    config: Any = trained.model.config
    if not isinstance(config, WordEncoderConfig) or not config.bert:
        raise without_class(trained)
    params = jax.tree.map(np.asarray, dict(trained.params))
    rest = dict(params.pop(NAME))
    shape, bert = encoder_of_tokens(config.encoder, rest.pop("bert"))
    others = {**params, **({NAME: rest} if rest else {})}
    return Pretrained(shape, bert, None, trained.processor.inputs.pieces.of_words), others


def encoder_of_tokens(config: BertConfig, params: Params) -> tuple[BertConfig, Params]:
    """The encoder of a model of tokens and its parameters, without an unused pooler."""
    read = {name: value for name, value in params.items() if not config.unread_by_tokens((name,))}
    return dataclasses.replace(config, use_pooler=config.use_pooler and not config.pools), read


def token_classifier_of(trained: Trained) -> Classifier | None:
    """The output layer of a tagger that is only a BERT; None for other models."""
    config: Any = trained.model.config
    if not isinstance(config, TaggerConfig) or not config.only_bert or config.encoder.of_tokens() != config.encoder:
        return None
    if trained.processor.parts:
        return None
    kernel, bias = (np.asarray(trained.params[HEAD][name]) for name in ("kernel", "bias"))
    return Classifier(kernel, bias, config.input_dropout_rate, trained.processor.labels, head=OF_TOKENS)
