"""Sentences with a label for each word: named entities or parts of speech; known data sets or files of your own."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from data import Corpus, DataError, Split, refuse_path, require_batch, require_processor, require_same_options
from data.download import locate_folder
from data.pipelines.buckets import Buckets
from data.pipelines.endless import iterable, shuffled
from data.pipelines.fingerprints import fingerprint
from data.pipelines.lengths import multiples
from data.readers.file_options import SplitFiles
from data.readers.held_out import held_out_note, hold_out
from data.readers.labelled_data_sets import find_file
from data.readers.raw_sentences import Counts, RawSentence
from data.readers.repeated import warn_of_alike
from data.readers.tagged_files import (
    FileFormat,
    TagColumns,
    TaggedFile,
    TagSet,
    check_labels,
    read_tagged,
    scheme_of_file,
)
from data.readers.tagged_summary import summary
from data.small_grammar import GrammarSentence, grammar_sentences
from jaxnlp.config import BatchSize, Count, Natural, PieceCount, UserPath
from jaxnlp.corpus import SourceRows, errors_as
from jaxnlp.text import most_frequent
from jaxnlp.text.columns import position
from jaxnlp.text.encoder_vocabulary import EncoderVocabulary, encoder_vocabulary
from jaxnlp.text.tag_schemes import (
    Scheme,
    convert,
    find_scheme,
    illegal_positions,
    labels_of,
    misspelt_entities,
    prefix_and_type,
    spans_of,
)
from jaxnlp.text.tagger_processor import TaggedSentence, TaggerProcessor
from jaxnlp.text.word_inputs import WordInputs
from jaxnlp.text.word_split import Unit

OWN_FILES = "for your own sentences, set --data.source files and give them with --data.train FILE"
"""The alternative to the files of a known data set."""
Source = Literal["small_grammar", "conll2003_ner", "resume_ner_zh", "weibo_ner_zh", "ud_en_ewt", "files"]

_Encoded = dict[str, np.ndarray]


class Known(NamedTuple):
    """A known data set: its files in a folder of JAXNLP_DATA, their columns, the unit and the scheme."""

    train: str
    validation: str
    columns: TagColumns = TagColumns()
    unit: Unit = "words"
    scheme: Scheme = "bio"


KNOWN = {
    "conll2003_ner": Known("train.txt", "valid.txt"),
    "resume_ner_zh": Known("train.char.bmes", "dev.char.bmes", unit="characters", scheme="bmes"),
    "weibo_ner_zh": Known(
        *("weiboNER_2nd_conll.train", "weiboNER_2nd_conll.dev"), columns=TagColumns(has_index=True), unit="characters"
    ),
    "ud_en_ewt": Known("en_ewt-ud-train.conllu", "en_ewt-ud-dev.conllu", scheme="none"),
}


@dataclasses.dataclass(frozen=True)
class TaggedSentences(SplitFiles):
    """Sentences of words with a label each.

    Files have columns (a word a line, an empty line after each sentence), JSON ({"text": "...", "entities": [{"start":
    0, "end": 5, "type": "PER"}]}, words and labels, or the exports of Doccano, Prodigy and Label Studio), or are
    CoNLL-U. Sentences that are too long are split, outside entities if possible.
    """

    usual = ("source", "path", "train", "batch_size")

    source: Source = "small_grammar"
    """Sentences of a small grammar, which need no files; the English news of CoNLL-2003, Chinese résumés, Chinese
    Weibo posts, UD English EWT's parts of speech; or files of your own."""
    path: UserPath | None = None
    """Folder of a known data set; None = in $JAXNLP_DATA."""
    format: FileFormat = "auto"
    """Format of your files; auto = JSON for .json, .jsonl and files that start with a JSON object or a list of them,
    CoNLL-U for .conllu, and columns for all others."""
    word_column: Natural = 0
    """Column of the word in your files of columns, from 0."""
    label_column: int = -1
    """Column of the label in your files of columns, from 0; -1 = the last one."""
    tags: TagSet | tuple[TagSet, ...] = "upos"
    """Labels to read from CoNLL-U: Universal POS tags, the treebank's own (xpos), or morphological features (feats, one
    label for all features of a word); or several of these, each with its own output."""
    scheme: Literal["auto"] | Scheme = "auto"
    """Scheme of the labels in your files, not of positions of entities in JSON; none = labels of words that are not
    entities; auto = inferred from the labels of each file."""
    train_scheme: Literal["bio", "bioes", "bmes"] = "bioes"
    """Scheme of the labels that the model predicts, if labels are entities."""
    predict: Literal["entities", "tags"] = "entities"
    """Labels of the small grammar to learn: entities or parts of speech."""
    unit: Unit = "words"
    """Unit of your sentences, and of texts in prediction: words or single characters."""
    sentences: Count = 5_000
    """Number of training sentences of the small grammar."""
    held_out_sentences: Count = 500
    """Number of validation sentences of the small grammar; they do not depend on the seed."""
    minimum_count: Count = 1
    """Minimum number of occurrences of a word in the training sentences; others are unknown words."""
    lowercase: bool = True
    """Lowercase words before they are looked up; characters and a BERT read them unchanged."""
    zero_digits: bool = True
    """Read every digit as 0 when a word is looked up."""
    max_characters: Count = 20
    """Maximum number of characters of a word that are read."""
    max_length: Count = 128
    """Maximum length of a sentence in words; longer ones are split."""
    max_pieces: PieceCount = 256
    """Maximum length of a sentence in tokens of a BERT; longer ones are split."""
    context: Natural = 0
    """Number of words before and after a sentence, in its file, that a BERT reads, too."""
    length_multiple: Count = 16
    """Batches have the length of their longest sentence, rounded up to a multiple of this; JAX compiles a program for
    each length."""
    evaluation_batch_size: BatchSize = 64
    """Number of sentences in an evaluation step."""

    def __post_init__(self):
        super().__post_init__()
        if isinstance(self.tags, tuple) and (not self.tags or len(set(self.tags)) < len(self.tags)):
            raise ValueError(f"data.tags must be distinct, and at least one, got {', '.join(self.tags) or 'none'}")
        if self.tags in (("upos",), ("xpos",)):
            object.__setattr__(self, "tags", self.tags[0])
        own, drawn = self.source == "files", self.source == "small_grammar"
        if own or drawn:
            refuse_path(self.source, self.path, OWN_FILES)
        self.only_if(own, "data.source files", "format", "word_column", "label_column", "scheme", "unit")
        self.only_if(own or self.source == "ud_en_ewt", "data.source files and ud_en_ewt", "tags")
        self.only_if(not self.parts, "one kind of label", "scheme", "word_column", "label_column")
        self.only_if(not drawn, "sentences of a file", "context")
        self.only_if(drawn, "data.source small_grammar", "predict", "sentences", "held_out_sentences")

    @property
    def parts(self) -> tuple[TagSet, ...]:
        """Names of the kinds of tags, if there are several. Features are always a part: new ones are no error."""
        return ("feats",) if self.tags == "feats" else self.tags if isinstance(self.tags, tuple) else ()

    @property
    def _columns(self) -> TagColumns:
        known = KNOWN.get(self.source)
        columns = TagColumns(self.word_column, self.label_column) if known is None else known.columns
        return columns._replace(tags=self.parts or self.tags)

    @property
    def _unit(self) -> Unit:
        known = KNOWN.get(self.source)
        return self.unit if known is None else known.unit

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """Reads the files; the splits are `validation` and, if there is a file, `test`.

        Args:
          seed: determines the order of training, and the sentences of the small grammar.
          processor: the tokenizer of a pretrained BERT, or the processor of an earlier run, with its vocabularies and
            equal options. None = vocabularies of the training sentences.

        Raises: FileNotFoundError, DataError when a file is not found or has wrong content, such as a label that is not
          in the training sentences.
        """
        files = self._files(seed)
        scheme = self._scheme(files["train"])
        schemes = {  # sentences that are held out are those of the training file
            split: scheme if file.name == files["train"].name else scheme_of_file(file, self.scheme, scheme)
            for split, file in files.items()
        }
        for split, file in files.items():
            check_labels(file, schemes[split])
        # A type that only occurs in sentences that are held out is a type of the training file.
        held_out = files["validation"].sentences if self.source == "files" and self.validation is None else []
        processor = self._processor(files["train"].sentences, held_out, scheme, processor)
        for one in processor.by_part.values():
            warn_of_alike(files["train"].name, one.types, "types")
        rows = {split: self._rows(file, processor, schemes[split]) for split, file in files.items()}
        train = rows.pop("train")
        require_batch(len(train), self.batch_size, "sentences")
        description = summary(processor, {"training": train, **rows}, files["train"].counts)
        if held_out:
            kept = len(files["train"].sentences)
            description += "\n" + held_out_note(len(held_out), len(held_out) + kept, files["train"].name)
        known = list(map(processor.encode, train))
        held = {split: list(map(processor.encode, sentences)) for split, sentences in rows.items()}
        buckets = self._buckets(itertools.chain(known, *held.values()), processor)
        examples = shuffled(known, seed)
        return Corpus(
            train=iterable(buckets.endless(examples, self.batch_size, seed=seed)),
            splits={
                split: self._split(sentences, held[split], buckets, files[split].counts)
                for split, sentences in rows.items()
            },
            processor=processor,
            description=description,
            fingerprint=fingerprint(repr((processor.to_json(), train, rows))),
            of_each_shape=buckets.of_each_shape(known, self.batch_size),
        )

    def read_file(self, path: Path, processor: Any) -> Split:
        """A file of labelled sentences, or of sentences without labels. Raises: FileNotFoundError, DataError."""
        processor = require_processor(processor, TaggerProcessor)
        file = read_tagged(
            path,
            format=self.format,
            columns=self._columns,
            unit=processor.unit,
            labelled=None,
            encoding=self.encoding,
            context=processor.context,
        )
        scheme = scheme_of_file(file, self.scheme, None if processor.has_entities else "none")
        check_labels(file, scheme)
        whole = self._scored(file, file.sentences, processor, scheme)
        if not file.unlabelled:
            return whole
        others = self._scored(file._replace(counts=Counts()), file.unlabelled, processor, scheme)
        every = sorted([*file.sentences, *file.unlabelled], key=lambda one: one.number)
        others = dataclasses.replace(others, source=_source(every, others))
        return dataclasses.replace(whole, source=_source(every, whole), unlabelled=others)

    def _scored(
        self, file: TaggedFile, sentences: Sequence[RawSentence], processor: TaggerProcessor, scheme: Scheme
    ) -> Split[TaggedSentence]:
        """Some sentences of a file as a split."""
        rows = self._rows(file._replace(sentences=list(sentences)), processor, scheme)
        encoded = list(map(processor.encode, rows))
        return self._split(rows, encoded, self._buckets(encoded, processor), file.counts)

    def _files(self, seed: int) -> dict[str, TaggedFile]:
        """The sentences of `train`, `validation` and, if there is a file, `test`."""
        if self.source == "small_grammar":
            held_out = grammar_sentences(self.held_out_sentences, seed=0)
            drawn = {"train": grammar_sentences(self.sentences, seed=1 + seed, without=held_out)}
            drawn["validation"] = held_out
            name = "the small grammar"
            return {split: TaggedFile(name, self._raw(sentences), Counts()) for split, sentences in drawn.items()}
        known = KNOWN.get(self.source)
        if known is not None:
            holds = f"{known.train} and {known.validation}"
            folder = locate_folder(self.source, self.path, holds=holds, otherwise=OWN_FILES)
            paths = {"train": find_file(folder, known.train), "validation": find_file(folder, known.validation)}
        else:
            paths = self.given_files()
        files = {
            split: read_tagged(
                path,
                format=self.format,
                columns=self._columns,
                unit=self._unit,
                labelled=None if split == "test" else True,
                encoding=self.encoding,
                context=self.context,
            )
            for split, path in paths.items()
        }
        if "validation" in files:
            return files
        train = files["train"]
        kept, validation = hold_out(train.sentences, train.name)
        split = {"train": train._replace(sentences=kept), "validation": TaggedFile(train.name, validation, Counts())}
        return files | split

    def _raw(self, sentences: Sequence[GrammarSentence]) -> list[RawSentence]:
        """Sentences of the small grammar in the form of a file, one sentence a line."""
        return [
            RawSentence((number,) * len(labels), number, one.words, labels)
            for number, one in enumerate(sentences, 1)
            for labels in (one.labels if self.predict == "entities" else one.tags,)
        ]

    def _scheme(self, train: TaggedFile) -> Scheme:
        if self.source == "small_grammar":
            return "bio" if self.predict == "entities" else "none"
        known = KNOWN.get(self.source)
        if known is not None or self.parts:
            return "none" if known is None else known.scheme
        if train.has_spans:
            return "bio"
        if self.scheme != "auto":
            return self.scheme
        labels = [one.labels or () for one in train.sentences]
        scheme = find_scheme(labels)
        if scheme == "none" and len(distinct := {label for row in labels for label in row}) < 2:
            raise DataError(
                f"{train.name}: expected at least two distinct labels, got only {', '.join(distinct)}; choose the "
                "column of the labels with --data.label-column"
            )
        if scheme == "none" and find_scheme([one.words for one in train.sentences]) != "none":
            raise DataError(
                f"{train.name}: the words look like labels of entities, such as {train.sentences[0].words[0]}; choose "
                "the columns with --data.word-column and --data.label-column"
            )
        if scheme == "none" and (misspelt := misspelt_entities(labels)):
            label, right = misspelt
            raise DataError(
                f"{train.name}: {label} looks like the label of an entity; write it as {right}, and others in the same "
                "way, or set --data.scheme none if labels are not those of entities"
            )
        return scheme

    def _processor(
        self, train: Sequence[RawSentence], held_out: Sequence[RawSentence], scheme: Scheme, given: Any
    ) -> TaggerProcessor:
        """The vocabularies of the training sentences, and the labels of these and of held-out ones. Raises: DataError
        when an earlier run, whose vocabularies are used, has other options."""
        types = dict[str, tuple[str, ...]]()
        for index, name in enumerate(self.parts or ("",)):
            known, others = (_types(_of_part(rows, index) if name else rows, scheme) for rows in (train, held_out))
            if not known:
                raise DataError("the training sentences have no entities; give other files, or data.scheme none")
            types[name] = tuple(dict.fromkeys(known + others))
        mine: Scheme = "none" if scheme == "none" else self.train_scheme
        inputs = getattr(given, "inputs", None)
        if isinstance(inputs, WordInputs):
            names = ("minimum_count", "lowercase", "zero_digits", "max_characters")
            require_same_options(inputs, {name: getattr(self, name) for name in names})
            inputs = dataclasses.replace(inputs, max_length=self.max_length, max_pieces=self.max_pieces)
            if isinstance(given, TaggerProcessor) and given.scheme == mine:
                before = {name: set(one.types) for name, one in given.by_part.items()}
                if before == {name: set(kinds) for name, kinds in types.items()}:
                    return dataclasses.replace(given, inputs=inputs, unit=self._unit, context=self.context)
        vocabulary = encoder_vocabulary(given)
        if not isinstance(inputs, WordInputs):
            inputs = WordInputs.of_sentences(
                (one.words for one in train),
                minimum_count=self.minimum_count,
                pieces=None if vocabulary is None else require_processor(vocabulary, EncoderVocabulary),
                lowercase=self.lowercase,
                zero_digits=self.zero_digits,
                max_characters=self.max_characters,
                max_length=self.max_length,
                max_pieces=self.max_pieces,
            )
        labels, parts = ((), tuple(types.items())) if self.parts else (labels_of(types[""], mine), ())
        return TaggerProcessor(inputs, labels, mine, self._unit, parts, self.context)

    def _rows(self, file: TaggedFile, processor: TaggerProcessor, scheme: Scheme) -> list[TaggedSentence]:
        """Sentences with the labels of the model; splits long ones and counts them in `file.counts`."""
        name, sentences, counts, unlabelled = file
        written_in = None if processor.parts or scheme == processor.scheme else scheme
        rows = []
        for one in sentences:
            labels = one.labels
            if labels is not None and processor.parts:
                kinds = processor.by_part.values()
                fits = [all(tag in kind.ids for tag, kind in zip(tags, kinds, strict=True)) for tags in labels]
                counts.add_new(one, fits.count(False))
            elif labels is not None:
                illegal = illegal_positions(labels, scheme)
                counts.add_illegal(one, illegal)
                labels = tuple(convert(labels, processor.scheme))
                unknown = next((index for index, label in enumerate(labels) if label not in processor.ids), None)
                if unknown is not None:
                    where = position(name, one.lines[unknown], one.number, unknown + 1)
                    what = f"the label {labels[unknown]}"
                    if processor.has_entities:
                        what = f"an entity of the type {prefix_and_type(labels[unknown])[1]}"
                    raise DataError(
                        f"{where}: no training sentence has {what}; expected {', '.join(processor.types[:20])}"
                    )
            inside = _inside(labels) if labels is not None and processor.has_entities else ()
            with errors_as(DataError, f"{name}, line {one.line} (sentence {one.number})"):
                parts = processor.inputs.parts(one.words, inside)
            if len(parts) > 1:
                counts.add_divided(one)
            in_scheme = None if labels is None and not unlabelled else written_in
            row = TaggedSentence(str(one.number), one.words, labels, in_scheme, one.source, one.before, one.after)
            several = [row.part(f"{row.name}.{number}", part) for number, part in enumerate(parts, 1)]
            rows += several if len(parts) > 1 else [row]
        return rows

    def _buckets(self, encoded: Iterable[_Encoded], processor: TaggerProcessor) -> Buckets[_Encoded]:
        """Batches of sentences. Args: encoded: the sentences of all splits."""
        length = processor.inputs.encoded_length
        lengths = list(map(length, encoded))
        chosen = multiples(lengths, processor.inputs.longest, self.length_multiple, few=self.few_lengths)
        return Buckets(chosen, length, processor.batch)

    def _split(
        self,
        sentences: Sequence[TaggedSentence],
        encoded: Sequence[_Encoded],
        buckets: Buckets[_Encoded],
        counts: Counts,
    ) -> Split[TaggedSentence]:
        """One pass over the sentences, sorted by length."""
        batches, rows = buckets.one_pass(encoded, self.evaluation_batch_size)
        return Split(
            batches,
            examples=tuple(sentences),
            rows=rows,
            scored=all(one.labels is not None for one in sentences),
            notes=counts.notes(),
        )


def _source(every: Sequence[RawSentence], split: Split[TaggedSentence]) -> SourceRows:
    """The sentences of a file as its rows: a cell is a word, or a line of CoNLL-U. Args: split: some of them."""
    index_of = {str(one.number): index for index, one in enumerate(every)}
    cells = [one.words if one.source is None else one.source.lines for one in every]
    return SourceRows([index_of[one.name.partition(".")[0]] for one in split.examples], [*index_of], (), cells)


def _types(sentences: Sequence[RawSentence], scheme: Scheme) -> tuple[str, ...]:
    """The types of entities, or with the scheme none the labels; the most frequent first."""
    labelled = [one.labels or () for one in sentences]
    if scheme == "none":
        counts = Counter(label for labels in labelled for label in labels)
    else:
        counts = Counter(span.type for labels in labelled for span in spans_of(labels))
    return most_frequent(counts)


def _of_part(sentences: Iterable[RawSentence], index: int) -> list[RawSentence]:
    """The sentences with only one of the tags of each word."""
    return [one._replace(labels=tuple(tags[index] for tags in one.labels or ())) for one in sentences]


def _inside(labels: Sequence[str]) -> list[bool]:
    """Whether an entity continues at each word."""
    inside = [False] * len(labels)
    for start, stop, _ in spans_of(labels):
        inside[start + 1 : stop] = [True] * (stop - start - 1)
    return inside
