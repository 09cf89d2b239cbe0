"""The verbs of classifiers: `jaxnlp predict` and `attention`; `jaxnlp.tasks.bert_verbs` has those of all BERTs."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
import tyro

from jaxnlp.config import Within
from jaxnlp.images.reading import printable
from jaxnlp.inference.batches import ROW_SHAPES
from jaxnlp.input_files.notes import report_blank, report_skipped, report_truncated
from jaxnlp.input_files.rows import TextColumns
from jaxnlp.models.bert import BertModelConfig
from jaxnlp.ops.compiler_options import jit
from jaxnlp.saving.atomic_files import PAGES, require_place, write_file
from jaxnlp.tasks import Command, Trained
from jaxnlp.tasks.attention import PAGE_TOKENS, page_of, require_attention
from jaxnlp.tasks.classification import rollout_page, words_page
from jaxnlp.tasks.classification.attention import word_weights
from jaxnlp.tasks.classification.inputs import CommandInputs, chosen_part, given_rows, read_chunk
from jaxnlp.tasks.classification.predict import Predictor


@dataclasses.dataclass(frozen=True)
class Predict(Command):
    """Predicts the classes of texts, of pairs of texts or of images, one line for each.

    A line has columns separated by tabs: the class and its probability, or a number; then the text, both texts, or the
    file. Several classes are separated by commas, with the lowest of their probabilities. A blank text and an
    unreadable image have empty columns, and notes on standard error count them.
    """

    summary = "Predicts classes of texts or images, entities in texts, or answers to questions."

    inputs: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts; none = those of the file, or of standard input. For models of images: files, or folders of them."""
    pair: tuple[str, ...] = ()
    """The second text of each, for pairs."""
    file: Path | None = None
    """A file with one text a line, or two texts with a tab between them; or a table (.csv, .tsv, .jsonl) with the
    columns of the training table; - = standard input."""
    resize: bool = False
    """Scale images of another size than the model's, and crop their middle square; always on for a model that was
    trained with --data.resize."""
    threshold: Annotated[float, Within("(0, 1)")] | None = None
    """Predict each class, or the second of two, whose probability is at least this. None = the threshold in the run's
    folder, if `jaxnlp evaluate RUN threshold` chose one; otherwise the most probable class, or 0.5 for several
    classes."""
    json: bool = False
    """Print a JSON object for each input, with the probabilities of all classes."""
    part: str | None = None
    """Part of a model of several parts, such as sst. None = all that fit the number of texts; several start each line
    with their name."""

    def __call__(self, trained: Trained) -> None:
        """Prints the predictions, those of the first inputs before it reads the rest.

        Raises: ValueError, OSError for missing or unreadable inputs, and for a part that does not fit them; for several
        images only if none can be read.
        """
        processor, predictors = trained.processor, list[Predictor]()
        if self.part is not None:
            processor = processor.by_part[chosen_part(processor, self.part)]
        count, truncated, blank, skipped = 0, list[int](), list[int](), list[Exception]()
        given = CommandInputs(self.inputs, self.pair, self.file, self.resize, TextColumns.of_run(trained.config))
        for rows in given_rows(processor, given):
            predictors = predictors or [
                Predictor(trained, name, self.threshold)
                for name, one in processor.by_part.items()
                if len(processor.by_part) == 1 or one.texts == len(rows[0])
            ]
            read = [read_chunk(one.processor, rows, resize=self.resize) for one in predictors]
            answers = [one(chunk) for one, chunk in zip(predictors, read, strict=True)]
            for index, predictions in enumerate(zip(*answers, strict=True)):
                for one, prediction in zip(predictors, predictions, strict=True):
                    if self.json:
                        named = {"part": one.part} if one.part else {}
                        fields = read[0].fields[index] | named | one.targets.answer(prediction)
                        print(json.dumps(fields, ensure_ascii=False))
                    else:
                        columns = [*one.targets.fields(prediction), *read[0].shown[index]]
                        print("\t".join([one.part, *columns] if len(predictors) > 1 else columns))
            print(end="", flush=True)
            truncated += [count + row for row in read[0].truncated]
            skipped += read[0].unread.values()
            blank += [count + row + 1 for row in read[0].blank]
            count += len(rows)
        if skipped and count == len(skipped):
            raise skipped[0]
        report_skipped(list(map(str, skipped)), count, "images", "class")
        report_truncated(truncated, count, getattr(processor, "max_length", 0))
        report_blank(blank, count, self.inputs, self.file)


@dataclasses.dataclass(frozen=True)
class PredictionAttention(Command):
    """Writes a page that shows the attention of predictions.

    For a BERT it shows the attention weights of all layers and heads on a text; for other models of texts the weights
    of words in the pooling; for models of images the attention of all layers to patches (attention rollout).
    """

    summary = "Writes a page that shows what a model attends to."
    as_trained = True

    inputs: tyro.conf.Positional[tuple[str, ...]] = ()
    """Texts, one for a BERT; none = those of the file, or of standard input. For models of images: files or folders."""
    pair: tuple[str, ...] = ()
    """The second text of each, for pairs; a BERT encodes both together."""
    file: Path | None = None
    """A file with one text a line, or two texts with a tab between them, or a table, as for predict; - = standard
    input. Not for a BERT."""
    out: Path = Path("attention.html")
    """The page to write."""
    resize: bool = False
    """Scale images of another size than the model's, and crop their middle square; always on for a model that was
    trained with --data.resize."""
    max_length: int | None = None
    """For a BERT: maximum length in tokens; longer texts are truncated; None = 128."""

    def __call__(self, trained: Trained) -> None:
        """Writes the page. Raises: ValueError, OSError for missing inputs, and for models without attention weights."""
        require_place(self.out, *PAGES)
        config: Any = trained.model.config
        given = CommandInputs(self.inputs, self.pair, self.file, self.resize, TextColumns.of_run(trained.config))
        is_bert = isinstance(config, BertModelConfig)
        if self.max_length is not None and not is_bert:
            raise ValueError("--max-length applies only to a BERT; remove it")
        if is_bert:
            page = _page_of_layers(trained, given, PAGE_TOKENS if self.max_length is None else self.max_length)
        elif config.has_rollout:
            page = _page_of_images(trained, given)
        else:
            require_attention(trained)
            page = _page_of_texts(trained, given)
        write_file(self.out, page.encode())
        print(self.out)


def _page_of_layers(trained: Trained, given: CommandInputs, max_length: int) -> str:
    if len(given.inputs) != 1 or len(given.pair) > 1 or given.file is not None:
        raise ValueError("the page of a BERT shows one text: give one text, or a pair with --pair, without --file")
    if given.resize:
        raise ValueError("--resize applies only to images; remove it")
    return page_of(trained, (*given.inputs, *given.pair), max_length)


def _page_of_images(trained: Trained, given: CommandInputs) -> str:
    predictor = Predictor(trained, "") if trained.processor.outputs else None
    rollout = jit(cast(Any, trained.model).attention_rollout)
    images, shares, captions, unread = list[np.ndarray](), list[np.ndarray](), list[str](), list[Exception]()
    for rows in given_rows(trained.processor, given):
        chunk = read_chunk(trained.processor, rows, resize=given.resize)
        labels = [f": {predictor.targets.caption(one)}" for one in predictor(chunk)] if predictor else [""] * len(rows)
        unread += chunk.unread.values()
        for index, row in enumerate(chunk.kept):
            image = chunk.batch([index], ROW_SHAPES[0])["images"]
            images.append(image[0])
            shares.append(np.asarray(rollout(trained.params, image))[0])
            captions.append(f"{printable(rows[row][0].name)}{labels[row]}")
    if not images:
        raise unread[0]
    report_skipped(list(map(str, unread)), len(images) + len(unread), "images", "place on the page")
    return rollout_page.render_page(np.stack(images), np.stack(shares), captions, trained.name)


def _page_of_texts(trained: Trained, given: CommandInputs) -> str:
    predictor, texts = Predictor(trained, ""), list[tuple[list[str], np.ndarray]]()
    captions, count, truncated, blank = list[str](), 0, list[int](), list[int]()
    for rows in given_rows(trained.processor, given):
        chunk = read_chunk(trained.processor, rows)
        truncated += [count + row for row in chunk.truncated]
        blank += [count + row + 1 for row in chunk.blank]
        count += len(rows)
        texts += word_weights(trained, chunk)
        predictions = predictor(chunk)
        captions += [predictor.targets.caption(predictions[row]) for row in chunk.kept]
    if not texts:
        raise ValueError("all texts are blank; give a text with characters")
    report_truncated(truncated, count, trained.processor.max_length)
    report_blank(blank, count, given.inputs, given.file)
    return words_page.render_page([one for one, _ in texts], [one for _, one in texts], captions, trained.name)
