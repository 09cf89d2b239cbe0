"""Classifiers of images as classes of Transformers."""

import dataclasses
from typing import Any

import jax
import numpy as np

from jaxnlp.convert.pretrained_image_encoder import PretrainedImageEncoder, save_image_encoder
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.models.decoder_classifier import DecoderClassifierConfig
from jaxnlp.models.vit import ViTConfig
from jaxnlp.tasks import Trained
from jaxnlp.tasks.bert_verbs.commands import Export
from jaxnlp.tasks.classification.decoders import save_decoder_classifier
from jaxnlp.tasks.classification.kept_threshold import kept_threshold


@dataclasses.dataclass(frozen=True)
class ExportClassifier(Export):
    """Writes a classifier as a directory that Hugging Face Transformers reads.

    Of texts: the BERT of a run with its tokenizer, its pretraining heads, and the pooling and the maximum length for
    sentence-transformers. A single head on the pooler, of texts or of pairs that are read together, becomes a
    BertForSequenceClassification, or that of its family, such as RobertaForSequenceClassification. A single head with
    another pooling becomes a class of classify.py in the directory, which Transformers runs with
    trust_remote_code=True. Other heads are in heads.safetensors, since no class of Transformers has them; classes that
    would initialise them at random refuse the directory.

    With a decoder: a GPT2ForSequenceClassification, or that of a Llama, a Mistral, a Qwen2 or a Qwen3.

    Of images: a Vision Transformer with the layers of Transformers becomes a ViTForImageClassification, a
    DeiTForImageClassification or a DeiTForImageClassificationWithTeacher, with its preprocessor_config.json and the
    names of its classes; without a head it becomes a ViTModel or a DeiTModel.

    `jaxnlp.load_pretrained` and the verbs read the directory back, with its heads.
    """

    def __call__(self, trained: Trained) -> None:
        super().__call__(trained)
        threshold = kept_threshold(trained)
        if threshold is not None:
            print(
                f"{self.folder}: the run's threshold {threshold:g} is not part of it; give --threshold {threshold:g} "
                "to jaxnlp predict, or compare the probabilities with it"
            )

    def write_transformers(self, trained: Trained) -> None:
        model: Any = trained.model
        if not isinstance(model.config, ViTConfig | DecoderClassifierConfig):
            super().write_transformers(trained)
            return
        params = jax.tree.map(np.asarray, dict(trained.params))
        try:
            if isinstance(model.config, ViTConfig):
                kind = save_image_encoder(self.folder, PretrainedImageEncoder(model.config, params, trained.processor))
            else:
                kind = save_decoder_classifier(self.folder, trained)
        except WeightsError as error:
            raise WeightsError(f"{trained.name}: {error}; give --format jax") from error
        print(f"{self.folder}: transformers.{kind}.from_pretrained reads it, and jaxnlp")
        if isinstance(model.config, ViTConfig) and trained.processor.preprocessing.conversion == "opaque":
            print(
                f"{self.folder}: images with transparent pixels get other predictions than in the run: the run makes "
                "these pixels white, and Transformers ignores transparency; save such images on a white background"
            )
