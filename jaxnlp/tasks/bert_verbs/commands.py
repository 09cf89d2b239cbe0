"""The verbs of models with a BERT: `jaxnlp embed`, `attention` and `export`."""

import dataclasses
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

from jaxnlp.convert.folders import EXPORTED
from jaxnlp.convert.pretrained_encoder import Classifier, Pretrained, architecture, head_prefix, save_pretrained
from jaxnlp.input_files.notes import report_blank, report_truncated
from jaxnlp.input_files.rows import TextColumns, chunks, rows_of
from jaxnlp.models.bert_classifier import BertClassifierConfig
from jaxnlp.models.text_vectors import Pooling
from jaxnlp.saving.atomic_files import require_place, write_file
from jaxnlp.targets import Number
from jaxnlp.tasks import Command, Trained
from jaxnlp.tasks.attention import Attention
from jaxnlp.tasks.bert_verbs.encodings import (
    embed_texts,
    embedding_settings_of,
    encoder_config,
    has_bert,
    l2_normalize,
    max_length_of,
    vocabulary_of,
)
from jaxnlp.tasks.bert_verbs.exported import HEADS, ExportedHead, description, heads_file
from jaxnlp.tasks.bert_verbs.torch_classifier import PROGRAM_FILE, torch_classifier
from jaxnlp.tasks.export import ExportCommand, without_class
from jaxnlp.text.blank_texts import blank_rows
from jaxnlp.text.raw_texts import one_line


@dataclasses.dataclass(frozen=True)
class Embed(Command):
    """Computes text embeddings, as .npy or JSON lines.

    The embedding of a blank text is zero, and a note on standard error counts blank texts.
    """

    texts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts; none = those of the file, or of standard input."""
    file: Path | None = None
    """A file with one text a line; or a table (.csv, .tsv, .jsonl) with the column of the text as in training, or named
    text; - = standard input."""
    out: Path | None = None
    """Write the embeddings to this .npy file, [N, D] float32, for numpy.load; None = print JSON lines."""
    similarities: bool = False
    """Print the cosine similarity of all pairs of texts, tab-separated, one line a text, instead of embeddings."""
    pooling: Pooling | None = None
    """Embedding of a text: its first token's (cls), the pooler's, the mean over its tokens, or another pooling of
    sentence-transformers. None = the model's."""

    def __call__(self, trained: Trained) -> None:
        """Writes or prints the embeddings.

        Raises: ValueError, OSError for texts that are missing or cannot be read, and if the file cannot be written.
        """
        encoder_config(trained)  # an error for a model without a BERT, before texts are read
        require_place(self.out, ".npy")
        printed = self.out is None and not self.similarities
        texts: list[str] = []
        vectors: list[np.ndarray] = []
        truncated, blank = list[int](), list[int]()
        for rows in chunks(rows_of(self.texts, (), self.file, count=1, columns=TextColumns.of_run(trained.config))):
            chunk = [text for (text,) in rows]
            blank += blank_rows(rows, len(texts))
            embeddings = embed_texts(trained, chunk, pooling=self.pooling)
            truncated += [len(texts) + index for index in embeddings.truncated_rows]
            texts += chunk
            if printed:
                print_vectors("text", chunk, embeddings.values)
            else:
                vectors.append(embeddings.values)
        report_truncated(truncated, len(texts), max_length_of(trained))
        report_blank(blank, len(texts), self.texts, self.file)
        if not printed:
            self.finish(texts, np.concatenate(vectors))

    def finish(self, names: Sequence[str], vectors: np.ndarray) -> None:
        """Writes or compares the vectors [N, D] of texts or images with these names."""
        if self.out is not None:
            content = io.BytesIO()
            np.save(content, vectors)
            write_file(self.out, content.getvalue())
        if self.similarities:
            directions = l2_normalize(vectors)
            for name, cosines in zip(names, directions @ directions.T, strict=True):
                print(*(f"{cosine:.4f}" for cosine in cosines), one_line(name), sep="\t")


def print_vectors(field: str, names: Sequence[str], vectors: np.ndarray) -> None:
    """Prints a JSON line for each of N texts or images: its name under `field`, and its vector, of vectors [N, D]."""
    for name, vector in zip(names, vectors, strict=True):
        # The shortest decimals that read back as the same float32. Those of a Python float have twice as many digits.
        numbers = ", ".join(map(str, vector))
        print(f'{{"{field}": {json.dumps(name, ensure_ascii=False)}, "vector": [{numbers}]}}')
    print(end="", flush=True)


@dataclasses.dataclass(frozen=True)
class PairAttention(Attention):
    """Draws the attention weights of a BERT on a text, or on a pair of texts, as a page that opens from disk."""

    pair: str | None = None
    """A second text, read together with the first as BERT reads pairs."""

    def second(self) -> str | None:
        return self.pair


@dataclasses.dataclass(frozen=True)
class Export(ExportCommand):
    """Writes the BERT of a run as a directory that Hugging Face Transformers reads, with its tokenizer.

    The directory includes the pretraining heads, and the pooling and the maximum length for sentence-transformers.
    `jaxnlp.load_pretrained` and the verbs read it back.
    """

    def write_transformers(self, trained: Trained) -> None:
        if not has_bert(trained.model):
            raise without_class(trained)
        pretrained, classifier = pretrained_of(trained), classifier_of(trained)
        written = {"encoder"} | ({"heads"} if pretrained.heads is not None else set())
        others = {name: params for name, params in trained.params.items() if name not in written and classifier is None}
        further_files = {HEADS: heads_file(trained.model.config, others)} if others else {}
        if others or classifier is not None:
            further_files[EXPORTED] = description(trained, trained.model.config, exported_head_of(trained, classifier))
        program = torch_classifier(trained, max_length_of(trained))
        if program is not None:
            further_files[PROGRAM_FILE] = program.encode()
        save_pretrained(
            self.folder, pretrained, classifier=classifier, further_heads=bool(others), further_files=further_files
        )
        kind = architecture(pretrained.config, pretrained.heads, classifier if program is None else None)
        hint = ", with its heads" if EXPORTED in further_files else ""
        print(f"{self.folder}: transformers.{kind}.from_pretrained reads it, and jaxnlp{hint}")
        if pretrained.pooling == "pooler":
            print(
                f"{self.folder}: the embeddings come from the pooler, which sentence-transformers does not support; "
                "use jaxnlp embed --pooling pooler"
            )
        if others:
            print(
                f"{self.folder / HEADS}: {', '.join(sorted(others))}: not part of any Transformers BERT class, so "
                "saved separately; kernels are [inputs, outputs], and the metadata has the model's config"
            )
        if program is not None:
            print(f"{self.folder / PROGRAM_FILE}: classifies texts with PyTorch; Transformers runs it, too")
        if classifier is not None:
            trust = ", trust_remote_code=True" * (program is not None)
            print(
                f"{self.folder}: for the same results as jaxnlp, also of long texts: "
                f'transformers.pipeline("text-classification", "{self.folder}", truncation=True{trust})'
                f"{_scale(trained)}"
            )


def _scale(trained: Trained) -> str:
    """The difference from a number that Transformers predicts, in words; "" for classes."""
    targets = trained.processor.targets
    if not targets.limited:
        return ""
    return f"; jaxnlp limits its numbers to the scale of the labels, from {targets.lowest:g} to {targets.highest:g}"


def pretrained_of(trained: Trained) -> Pretrained:
    """The BERT of a model for export. Raises: ValueError when the model does not have one."""
    encoder = encoder_config(trained)
    params = jax.tree.map(np.asarray, dict(trained.params))
    config: Any = trained.model.config
    bert = Pretrained(encoder, params["encoder"], params.get("heads"), vocabulary_of(trained))
    pooling = getattr(config, "pooling", None)
    if pooling is None:
        return bert
    settings = embedding_settings_of(trained)
    return bert._replace(
        pooling=pooling,
        max_length=max_length_of(trained),
        modules_after_pooling=("Normalize",) if settings.normalize and pooling != "pooler" else (),
        embeddings=settings,
    )


def classifier_of(trained: Trained) -> Classifier | None:
    """The only head of a model, if it is dropout and a dense layer on the vector of a text; otherwise None.

    A number is on the scale of the labels, but not clipped to it.
    """
    config: Any = trained.model.config
    only = config.only_head(trained.processor) if isinstance(config, BertClassifierConfig) else None
    if only is None:
        return None
    targets, layer = only.targets, trained.params[only.head]
    kernel, bias = (targets.width * np.asarray(layer[name]) for name in ("kernel", "bias"))
    program = None if config.pooling == "pooler" else Path(PROGRAM_FILE).stem
    names, rate = targets.names or ("number",), config.head_dropout_rate
    activation = "torch.nn.modules.linear.Identity" if isinstance(targets, Number) and not targets.sigmoid else None
    return Classifier(
        kernel, targets.lowest + bias, rate, names, targets.problem, program=program, activation=activation
    )


def exported_head_of(trained: Trained, classifier: Classifier | None) -> ExportedHead | None:
    """The only head of a classifier as the weights of Transformers have it."""
    if classifier is None:
        return None
    config: Any = trained.model.config
    only = config.only_head(trained.processor)
    prefix = head_prefix(config.encoder, classifier)
    return ExportedHead(only.head, prefix, only.targets.width, only.targets.lowest, classifier.names)
