"""Dependency treebanks: UD English EWT, CoNLL-U files of your own, and sentences of a small grammar."""

import dataclasses
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from data import Corpus, DataError, Split, refuse_path, require_processor, require_same_options
from data.download import locate_folder
from data.pipelines.buckets import Buckets, rows_of
from data.pipelines.fingerprints import fingerprint
from data.pipelines.lengths import up_to
from data.pipelines.transition_oracle import is_projective
from data.pipelines.tree_batches import DerivedTree, derived, tree_buckets, tree_length, tree_split
from data.readers.file_options import SplitFiles
from data.readers.held_out import held_out_note, hold_out
from data.readers.repeated import repeated_notes, warn_of_alike
from data.small_grammar import GrammarSentence, grammar_sentences
from jaxnlp.config import BatchSize, BatchTokens, Count, PieceCount, UserPath
from jaxnlp.corpus import SourceRows
from jaxnlp.input_files.text_files import UTF_8, read_text_file, warn_of_skipped
from jaxnlp.text.conllu import UNSPECIFIED, TreeSentence, parse_conllu, sentence_of
from jaxnlp.text.encoder_vocabulary import EncoderVocabulary, encoder_vocabulary
from jaxnlp.text.parser_processor import ParserProcessor, TagColumn, TreeSystem, tags_of
from jaxnlp.text.word_inputs import WordInputs

TreebankSource = Literal["small_grammar", "ud_en_ewt", "files"]
OWN_FILES = "for your own sentences, set --data.source files and give --data.train FILE --data.validation FILE"
"""The alternative to the files of UD English EWT."""
TAG_COLUMNS = ("upos", "xpos")
EWT_FILES = {"train": "en_ewt-ud-train.conllu.gz", "validation": "en_ewt-ud-dev.conllu"}


@dataclasses.dataclass(frozen=True)
class Treebank(SplitFiles):
    """Sentences with dependency trees, as transitions, or for graph parsers as heads.

    Transitions build only projective trees. Training by transitions leaves other trees out; the description counts
    them. Other splits keep them: their loss is that of a similar projective tree, their scores those of the tree. Graph
    parsers train on all trees.
    """

    usual = ("source", "path", "train", "batch_size")

    source: TreebankSource = "small_grammar"
    """Sentences of a small grammar, which need no files; UD English EWT; or CoNLL-U files of your own."""
    path: UserPath | None = None
    """Your copy of the folder of UD English EWT; None = in $JAXNLP_DATA."""
    sentences: Count = 5_000
    """Number of training sentences of the small grammar."""
    held_out_sentences: Count = 500
    """Number of validation sentences of the small grammar; they do not depend on the seed."""
    tags: TagColumn = "upos"
    """Tags that the parser reads: Universal POS tags, the treebank's own (XPOS), the pairs of both, or none."""
    subtypes: bool = True
    """Whether the parser predicts subtypes of relations, as in nsubj:pass."""
    system: TreeSystem = "arc_standard"
    """The transition system; or graph, for a graph parser, which has no transitions."""
    minimum_count: Count = 2
    """Minimum number of occurrences of a word, in lowercase, in the training sentences; others are unknown words."""
    max_length: Count = 256
    """Maximum length of a sentence, in words. Longer ones are left out of training, and are an error elsewhere."""
    max_pieces: PieceCount = 384
    """Maximum length of a sentence in tokens of BERT, for parsers with one; longer ones are an error."""
    batch_size: BatchSize = 256
    """Maximum number of sentences in a training step, over all devices."""
    batch_words: BatchTokens = 1_024
    """Maximum number of words, or of tokens of BERT, in a training batch, padding included."""
    evaluation_batch_words: BatchTokens = 8_192
    """Maximum number of words, or of tokens of BERT, in an evaluation batch, padding included."""
    lengths: tuple[int, ...] = (8, 16, 24, 32, 48, 64, 96)
    """Lengths of batches in words, or in BERT's tokens; data.max_length or data.max_pieces follows as the last one. JAX
    compiles a program for each length."""

    def __post_init__(self):
        super().__post_init__()
        if any(a >= b for a, b in itertools.pairwise(self.lengths)) or min(self.lengths, default=1) < 1:
            raise ValueError(f"data.lengths must increase and be at least 1, got {self.lengths}")
        drawn = self.source == "small_grammar"
        if self.source != "ud_en_ewt":
            refuse_path(self.source, self.path, OWN_FILES)
        self.only_if(drawn, "data.source small_grammar", "sentences", "held_out_sentences")
        if drawn and self.tags in ("xpos", "both"):
            raise ValueError(f"data.tags {self.tags} needs a treebank; the small grammar has Universal POS tags only")

    def buckets(self, lengths: Sequence[int], longest: int, processor: ParserProcessor) -> Buckets[DerivedTree]:
        """The batches of trees.

        Args:
          lengths: of training sentences, for which few lengths are chosen; see `tree_length`.
          longest: maximum length of a sentence of any split.
          processor: the processor.
        """
        last = processor.inputs.longest
        every = (*(length for length in self.lengths if length < last), last)
        return tree_buckets(up_to(longest, every, lengths, few=self.few_lengths), processor)

    def load(self, seed: int, processor: Any = None) -> Corpus:
        """Reads the treebank; the splits are `validation` and, if there is a file, `test`.

        Args:
          seed: decides the order of training, and the training sentences of the small grammar.
          processor: of an earlier parser, with its words, tags and relations; or the tokenizer of a BERT, or a
            processor with it. None = the words, tags and relations of the training sentences.

        Raises:
          FileNotFoundError: when a file is missing.
          DataError: naming an unreadable line; or when no training sentence is left.
        """
        splits = self._sentences(seed)
        for sentences in splits.values():
            self._require_tags(sentences)
        train = splits.pop("train")
        short = [sentence for sentence in train if len(sentence.words) <= self.max_length]
        graph = self.system == "graph"
        kept = [sentence for sentence in short if graph or is_projective(sentence.heads or ())]
        if not kept:
            fits = "short enough" if graph else "projective and short enough"
            raise DataError(f"no training sentence is left: none is {fits} for data.max_length")
        processor = self._processor(kept, processor)
        trees = [self._derived(sentence, processor) for sentence in kept]
        held = {name: [self._derived(sentence, processor) for sentence in of] for name, of in splits.items()}
        description = f"{len(kept):,} trees for training"
        if left_out := len(short) - len(kept):
            description += f" ({left_out:,} that are not projective were left out)"
        if left_out := len(train) - len(short):
            description += f" ({left_out:,} of more than {self.max_length} words were left out)"
        for name, sentences in splits.items():
            crossed = sum(not is_projective(sentence.heads or ()) for sentence in sentences)
            unknown = processor.unknown_words(sentences) / sum(len(sentence.words) for sentence in sentences)
            description += f", {len(sentences):,} for {name} ({crossed:,} not projective, {unknown:.0%} unknown words)"
        description += (
            f"; {len(processor.inputs.words):,} words, {len(processor.tags)} tags, {processor.num_relations} relations"
        )
        if not graph:
            description += f"; {processor.system.replace('_', '-')}, {processor.num_transitions} transitions"
        description += "".join(f"\ntraining: {note}" for note in processor.tag_note(kept))
        texts = {name: [(" ".join(one.words),) for one in of] for name, of in {"": kept, **splits}.items()}
        description += "".join(f"\n{note}" for note in repeated_notes("sentences", texts.pop(""), texts))
        warn_of_alike(str(self.train or self.source), processor.relations, "relations")
        if self.source == "files" and self.validation is None:
            held_out = len(splits["validation"])
            description += "\n" + held_out_note(held_out, held_out + len(train), str(self.train))
        content: list[Any] = [
            [(one.words, tags_of(one, processor.tag_column), one.heads, one.relations) for one in kept]
        ]
        content += [[one.lines for one in sentences] for sentences in splits.values()]
        longest = max(tree_length(processor, tree) for of_split in held.values() for tree in of_split)
        lengths = [tree_length(processor, tree) for tree in trees]
        buckets = self.buckets(lengths, max(longest, *lengths), processor)
        size = rows_of(self.batch_words, self.batch_size)
        return Corpus(
            train=buckets.epochs_of_same(trees, size, seed=seed),
            splits={name: self._split(of, held[name], processor, buckets) for name, of in splits.items()},
            processor=processor,
            description=description,
            fingerprint=fingerprint(json.dumps([processor.to_json(), content])),
            of_each_shape=buckets.of_each_length(size, trees),
        )

    def read_file(self, path: Path, processor: Any) -> Split:
        """A CoNLL-U file, with or without trees. Raises: FileNotFoundError, DataError."""
        processor = require_processor(processor, ParserProcessor)
        sentences = _with_words(path, self.encoding)
        with_trees = [sentence.heads is not None for sentence in sentences]
        if all(with_trees) or not any(with_trees):
            return self._scored(sentences, processor)
        lines = [one.line for one in sentences if one.heads is None]
        warn_of_skipped(path, lines, len(sentences), "sentences", "without a tree", "not scored")
        kinds = [[index for index, has in enumerate(with_trees) if has == tree] for tree in (True, False)]
        names, cells = [str(number) for number in range(1, len(sentences) + 1)], [one.lines for one in sentences]
        whole, others = (
            dataclasses.replace(
                self._scored([sentences[index] for index in indices], processor),
                source=SourceRows(indices, names, (), cells),
            )
            for indices in kinds
        )
        return dataclasses.replace(whole, unlabelled=others)

    def _scored(self, sentences: list[TreeSentence], processor: ParserProcessor) -> Split[TreeSentence]:
        trees = [self._derived(sentence, processor) for sentence in sentences]
        lengths = [tree_length(processor, tree) for tree in trees]
        return self._split(sentences, trees, processor, self.buckets(lengths, max(lengths), processor))

    def _sentences(self, seed: int) -> dict[str, list[TreeSentence]]:
        """The sentences of each split, including `train`."""
        if self.source == "small_grammar":
            return self._drawn(seed)
        if self.source == "ud_en_ewt":
            holds = " and ".join(EWT_FILES.values())
            folder = locate_folder("ud_en_ewt", self.path, holds=holds, otherwise=OWN_FILES)
            return {name: _read(folder / file) for name, file in EWT_FILES.items()}
        files = self.given_files()
        splits = {name: _read(file, self.encoding) for name, file in files.items()}
        if "validation" not in splits:
            train, held_out = hold_out(splits["train"], str(self.train))
            # Long sentences go back to training, which leaves them out; in a validation split they would be an error.
            splits["validation"] = [sentence for sentence in held_out if len(sentence.words) <= self.max_length]
            splits["train"] = train + [sentence for sentence in held_out if len(sentence.words) > self.max_length]
            if not splits["validation"]:
                raise DataError(
                    f"{self.train}: all {len(held_out)} sentences that are held out have more than {self.max_length} "
                    "words; raise data.max_length, or give a validation file with --data.validation FILE"
                )
        return splits

    def _require_tags(self, sentences: Sequence[TreeSentence]) -> None:
        """Raises DataError when no word of a split has a tag in a column that the parser reads."""
        tagged = [name for name in TAG_COLUMNS if any(set(getattr(one, name)) != {UNSPECIFIED} for one in sentences)]
        for name in TAG_COLUMNS:
            if self.tags in (name, "both") and name not in tagged:
                raise DataError(
                    f"{sentences[0].file}: data.tags is {self.tags}, and no word has a tag in the column "
                    f"{name.upper()}; set --data.tags {tagged[0] if tagged else 'none'}, or give files with these tags"
                )

    def _drawn(self, seed: int) -> dict[str, list[TreeSentence]]:
        held = grammar_sentences(self.held_out_sentences, seed=0)
        train = grammar_sentences(self.sentences, seed=1 + seed, without=held)
        return {"train": _trees_of(train), "validation": _trees_of(held)}

    def _processor(self, train: Sequence[TreeSentence], given: Any) -> ParserProcessor:
        """The processor of an earlier parser; or a new one from the training sentences, with a given BERT's tokenizer.
        Raises: DataError when an earlier parser has other options."""
        if not isinstance(given, ParserProcessor):
            inputs = WordInputs.of_sentences(
                [sentence.words for sentence in train],
                minimum_count=self.minimum_count,
                pieces=_tokenizer(given),
                max_length=self.max_length,
                max_pieces=self.max_pieces,
            )
            return ParserProcessor.of_sentences(
                train, inputs, tag_column=self.tags, subtypes=self.subtypes, system=self.system
            )
        options = {"system": self.system, "tag_column": self.tags, "subtypes": self.subtypes}
        require_same_options(given, options, {"tag_column": "tags"})
        require_same_options(given.inputs, {"minimum_count": self.minimum_count})
        inputs = dataclasses.replace(given.inputs, max_length=self.max_length, max_pieces=self.max_pieces)
        return dataclasses.replace(given, inputs=inputs)

    def _derived(self, sentence: TreeSentence, processor: ParserProcessor) -> DerivedTree:
        try:
            return derived(sentence, processor)
        except ValueError as error:
            raise DataError(
                f"{sentence.where}: {error}; split the sentence, or raise data.max_length or data.max_pieces"
            ) from error

    def _split(
        self,
        sentences: Sequence[TreeSentence],
        trees: Sequence[DerivedTree],
        processor: ParserProcessor,
        buckets: Buckets[DerivedTree],
    ) -> Split[TreeSentence]:
        crossed = sum(not is_projective(sentence.heads) for sentence in sentences if sentence.heads is not None)
        notes = [f"{crossed:,} of {len(sentences):,} trees are not projective"] if crossed else []
        notes += processor.tag_note(sentences)
        notes += processor.relation_note(sentences)
        return tree_split(sentences, trees, buckets, rows_of(self.evaluation_batch_words), notes=tuple(notes))


def _tokenizer(given: Any) -> EncoderVocabulary | None:
    """The tokenizer of the BERT that initialises a run; None = there is no BERT."""
    vocabulary = encoder_vocabulary(given)
    return None if vocabulary is None else require_processor(vocabulary, EncoderVocabulary)


def _read(path: Path, encoding: str = UTF_8) -> list[TreeSentence]:
    """The sentences of a file that have trees; warnings count the others. Raises: FileNotFoundError, DataError."""
    sentences = _with_words(path, encoding)
    without = [sentence for sentence in sentences if sentence.heads is None]
    if len(without) == len(sentences):
        raise DataError(f"{without[0].where}: no tree; expected HEAD and DEPREL of each word")
    warn_of_skipped(path, [sentence.line for sentence in without], len(sentences), "sentences", "without a tree")
    return [sentence for sentence in sentences if sentence.heads is not None]


def _with_words(path: Path, encoding: str) -> list[TreeSentence]:
    """The sentences of a file that have words; a warning counts the others. Raises: FileNotFoundError, DataError."""
    sentences = parse_conllu(read_text_file(path, encoding), str(path))
    lines = [sentence.line for sentence in sentences if not sentence.words]
    warn_of_skipped(path, lines, len(sentences), "sentences", "without words")
    return [sentence for sentence in sentences if sentence.words]


def _trees_of(sentences: Sequence[GrammarSentence]) -> list[TreeSentence]:
    return [
        sentence_of(one.words, one.tags, one.heads, one.relations, name=str(number))
        for number, one in enumerate(sentences, 1)
    ]
