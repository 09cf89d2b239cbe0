"""The verbs of models that compare images and texts: `jaxnlp predict`, `attention`, `embed` and `export`."""

import dataclasses
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np

from jaxnlp.convert.pretrained_clip import PretrainedCLIP, save_clip
from jaxnlp.convert.tensors import WeightsError
from jaxnlp.images.reading import printable
from jaxnlp.input_files.notes import report_blank, report_truncated
from jaxnlp.input_files.rows import TextColumns, chunks, rows_of
from jaxnlp.saving.atomic_files import PAGES, require_place, write_file
from jaxnlp.tasks import Trained
from jaxnlp.tasks.attention import PAGE_TOKENS, page_of
from jaxnlp.tasks.bert_verbs.commands import Embed, print_vectors
from jaxnlp.tasks.classification import Classification
from jaxnlp.tasks.classification.commands import Predict, PredictionAttention
from jaxnlp.tasks.classification.inputs import image_files
from jaxnlp.tasks.classification.vectors import vectors_of_files
from jaxnlp.tasks.export import ExportCommand
from jaxnlp.tasks.image_text_similarity.embeddings import embed_texts, image_encoder, names_image
from jaxnlp.tasks.image_text_similarity.zero_shot import classifier
from jaxnlp.text.blank_texts import blank_rows


@dataclasses.dataclass(frozen=True)
class PredictTexts(Predict):
    """Predicts which of several texts describes an image, one line for each image.

    A line has columns separated by tabs: the text and its probability, then the file. An unreadable image has empty
    columns, and a note on standard error counts such images.
    """

    classes: tuple[str, ...] = ()
    """At least two texts, such as "a photo of a cat", or names for the template."""
    template: str = "{}"
    """The text of a class, with {} for its name, such as "a photo of a {}"."""

    def __call__(self, trained: Trained) -> None:
        image_encoder(trained.model, trained.params)  # an error for a model of texts
        if not self.classes:
            raise ValueError('give the classes as texts, such as --classes "a photo of a cat" "a photo of a dog"')
        super().__call__(classifier(trained, self.classes, template=self.template))


@dataclasses.dataclass(frozen=True)
class AttentionToImages(PredictionAttention):
    """Writes a page that shows the attention of all layers to the patches of images (attention rollout); or with --text
    the attention weights of all layers and heads on a text."""

    classes: tuple[str, ...] = ()
    """Texts, as for predict: captions have the text that describes the image; none = only the attention."""
    template: str = "{}"
    """The text of a class, with {} for its name."""
    text: str | None = None
    """A text, instead of images."""

    def __call__(self, trained: Trained) -> None:
        if self.text is not None:
            if self.inputs or self.classes:
                raise ValueError("a page shows a text or images: give --text without images and --classes")
            self._refuse_template()
            require_place(self.out, *PAGES)
            length = PAGE_TOKENS if self.max_length is None else self.max_length
            write_file(self.out, page_of(trained, (self.text,), length).encode())
            print(self.out)
        elif self.classes:
            super().__call__(classifier(trained, self.classes, template=self.template))
        else:
            self._refuse_template()
            model, params = image_encoder(trained.model, trained.params)
            processor = trained.processor.images
            of_images = {"task": Classification(), "model": model, "params": params, "processor": processor}
            super().__call__(dataclasses.replace(trained, **of_images))

    def _refuse_template(self) -> None:
        """Raises: ValueError for a template without classes."""
        if self.template != "{}":
            raise ValueError("--template applies to the classes; give them with --classes, or leave it out")


@dataclasses.dataclass(frozen=True)
class EmbedTextsAndImages(Embed):
    """Computes embeddings of texts and images in one space, as .npy or JSON lines: first those of texts.

    The embedding of a blank text is zero, and a note on standard error counts blank texts.
    """

    images: tuple[Path, ...] = ()
    """Image files, or folders of them. With images, texts are read from standard input only for --file -."""
    resize: bool = False
    """Scale images of another size than the model's, and crop their middle square."""

    def __call__(self, trained: Trained) -> None:
        if self.pooling is not None:
            raise ValueError("--pooling does not apply: the vector of a text is that of its last token; remove it")
        for text in filter(names_image, self.texts):
            raise ValueError(f"{text} is an image file; give it after --images, because {text} alone is a text")
        files = image_files(self.images) if self.images else []
        encoder = image_encoder(trained.model, trained.inference_params) if files else None
        printed = self.out is None and not self.similarities
        names, vectors = list[str](), list[np.ndarray]()
        if self.texts or self.file is not None or not files:
            texts, of_texts = self._texts(trained, printed=printed)
            names, vectors = [*names, *texts], [*vectors, of_texts]
        if encoder is not None:
            images = trained.processor.images
            vectors.append(vectors_of_files(*encoder, images, files, resize=self.resize, printed=printed))
            names += [printable(file) for file in files]
        self.finish(names, np.concatenate(vectors))

    def _texts(self, trained: Trained, *, printed: bool) -> tuple[list[str], np.ndarray]:
        """The texts, and their vectors [N, D]. Raises: ValueError, OSError for unreadable texts."""
        texts, vectors, truncated, blank = list[str](), list[np.ndarray](), list[int](), list[int]()
        for rows in chunks(rows_of(self.texts, (), self.file, count=1, columns=TextColumns.of_run(trained.config))):
            chunk = [text for (text,) in rows]
            blank += blank_rows(rows, len(texts))
            embeddings = embed_texts(trained, chunk)
            truncated += [len(texts) + index for index in embeddings.truncated_rows]
            texts += chunk
            vectors.append(embeddings.values)
            if printed:
                print_vectors("text", chunk, embeddings.values)
        report_truncated(truncated, len(texts), trained.processor.max_length)
        report_blank(blank, len(texts), self.texts, self.file)
        return texts, np.concatenate(vectors)


@dataclasses.dataclass(frozen=True)
class ExportSimilarity(ExportCommand):
    """Writes a model of images and texts as a directory that Hugging Face Transformers reads as a CLIPModel, with its
    tokenizer and its image processor; or only its text encoder as a CLIPTextModelWithProjection."""

    def write_transformers(self, trained: Trained) -> None:
        processor, config = trained.processor, cast(Any, trained.model).config
        params = jax.device_get(trained.params)
        pretrained = PretrainedCLIP(config, params, processor.vocabulary, processor.max_length, processor.images)
        try:
            kind = save_clip(self.folder, pretrained)
        except WeightsError as error:
            raise WeightsError(f"{trained.name}: {error}; give --format jax") from error
        print(f"{self.folder}: transformers.{kind}.from_pretrained reads it, and jaxnlp")
