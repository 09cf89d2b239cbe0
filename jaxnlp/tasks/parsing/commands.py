"""`jaxnlp parse`."""

import dataclasses
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import tyro

from jaxnlp.config import Count, UserPath
from jaxnlp.inference.arguments import one_or_many
from jaxnlp.input_files.notes import report_blank, report_skipped
from jaxnlp.input_files.rows import TextColumns, chunks, name_of, read_text, rows_of
from jaxnlp.saving.atomic_files import PAGES, require_place, write_file, write_partial
from jaxnlp.tasks import Command, Trained
from jaxnlp.tasks.parsing.drawing import Drawn, as_html, as_svg, as_text
from jaxnlp.tasks.parsing.parser import SentenceParser
from jaxnlp.tasks.parsing.predicted_tags import require_tagger, require_tags, with_predicted_tags
from jaxnlp.tasks.parsing.scores import Tree
from jaxnlp.text.conllu import TreeSentence, parse_conllu, sentence_of, written
from jaxnlp.text.parser_processor import ParserProcessor, tags_of
from jaxnlp.text.raw_texts import one_line, require_sentences
from jaxnlp.text.word_split import placed_words

MOST_DRAWN = 200
"""Maximum number of sentences in a picture or on a page."""


@dataclasses.dataclass(frozen=True)
class Parse(Command):
    """Parses sentences, and prints the dependency tree of each.

    A line has a word, its relation to its head, and its number; it is below the head's line, indented further. A text
    is one sentence. A simple rule splits it into words; punctuation marks are words.

    A blank text, and a sentence that is too long for the parser, are empty in the output, and notes on standard error
    count them.

    A parser that reads tags needs them: from a CoNLL-U file, or from a tagger.
    """

    texts: tyro.conf.Positional[tuple[str, ...]] = ()
    """Sentences; none = those of the file, or of standard input."""
    file: Path | None = None
    """A file with one sentence a line; - = standard input."""
    conllu: Path | None = None
    """A CoNLL-U file with the words, and the tags if the parser reads them, but not trees; - = standard input."""
    tagger: UserPath | None = None
    """Run of a tagger that predicts the Universal POS tags; None = the tags of --conllu."""
    num_beams: Count = 1
    """Number of beams; 1 = greedy: the most probable transition at each step, or a graph parser's best tree."""
    json: bool = False
    """Print a JSON object for each sentence: words, tags, heads and relations."""
    out: Path | None = None
    """Also write the trees to this CoNLL-U file; multiword tokens, empty nodes and comments of --conllu stay."""
    svg: Path | None = None
    """Also draw the first 200 trees in this SVG picture."""
    html: Path | None = None
    """Also draw the first 200 trees on this page; long sentences scroll."""

    def __post_init__(self):
        super().__post_init__()
        if self.conllu is not None and (self.texts or self.file is not None):
            raise ValueError("sentences come from --conllu, or from texts and --file, not from both")

    def further_files(self) -> tuple[Path | None, ...]:
        return (self.conllu,)

    def further_models(self) -> tuple[str, ...]:
        return () if self.tagger is None else (self.tagger,)

    def __call__(self, trained: Trained, tagger: Trained | None = None) -> None:
        """Prints the trees, those of the first sentences before it reads the rest.

        Raises: ValueError, OSError for sentences that are missing, unreadable or lack tags, and when all are too long.
        """
        require_place(self.out, ".conllu", ".tsv", inputs=(self.conllu, self.file))
        require_place(self.svg, ".svg", option="--svg")
        require_place(self.html, *PAGES, option="--html")
        processor: ParserProcessor = trained.processor
        parse = SentenceParser(trained, num_beams=self.num_beams)
        if tagger is not None:
            require_tagger(tagger, processor)
        sentences = self._sentences(TextColumns.of_run(trained.config))
        if tagger is None and self.conllu is not None:
            sentences = list(sentences)
            require_tags(sentences, processor)
            for note in processor.tag_note(sentences):
                print(f"note: {note}", file=sys.stderr)
        drawn, lines = list[Drawn](), list[str]()
        count, skipped, blank, wordless = 0, list[str](), list[int](), list[str]()
        try:
            for chunk in chunks(sentences):
                if tagger is None and self.conllu is None:
                    require_tags(chunk, processor)
                for sentence, tree in _parsed(chunk, parse, processor, tagger):
                    if count and not self.json:
                        print()
                    count += 1
                    print(_json_line(sentence, tree) if self.json else _text(sentence, tree), end="", flush=True)
                    if not sentence.words:
                        blank.append(count)
                        wordless.append(sentence.where)
                    if isinstance(tree, str):
                        skipped.append(tree)
                        lines.append(written([sentence.without_tree()]))
                    elif sentence.words or self.conllu is not None:  # also what has only comments
                        lines.append(written([sentence.with_tree(*tree, upos=() if tagger is None else sentence.upos)]))
                    if not isinstance(tree, str) and sentence.words and len(drawn) < MOST_DRAWN:
                        tags = tags_of(sentence, "upos") if any(tag != "_" for tag in sentence.upos) else ()
                        drawn.append(Drawn(sentence.name, sentence.words, tags, tree))
        except BaseException:
            for path, content in self._contents(lines, drawn, trained.name) if count else ():
                write_partial(path, content().encode(), "sentences")
            raise
        if skipped and count == len(skipped):
            raise ValueError(skipped[0])
        for path in self._write(self._contents(lines, drawn, trained.name)):
            print(f"trees in {path}", file=sys.stderr)
        report_skipped(skipped, count, "sentences", "tree")
        if self.conllu is None:
            report_blank(blank, count, self.texts, self.file)
        else:
            report_skipped(wordless, count, "sentences", "words")

    def _contents(
        self, lines: Sequence[str], drawn: Sequence[Drawn], name: str
    ) -> list[tuple[Path, Callable[[], str]]]:
        """The files of the options, with functions for their contents."""
        made = [
            (self.out, lambda: "".join(lines)),
            (self.svg, lambda: as_svg(drawn)),
            (self.html, lambda: as_html(drawn, name)),
        ]
        return [(path, content) for path, content in made if path is not None]

    def _write(self, contents: Sequence[tuple[Path, Callable[[], str]]]) -> list[Path]:
        """Writes the files, and returns them. Raises: OSError when one cannot be written."""
        failures = list[OSError]()
        for path, content in contents:
            try:
                write_file(path, content().encode())
            except OSError as error:
                failures.append(error)
        if failures:  # only now, so that one file that cannot be written costs no other
            raise failures[0]
        return [path for path, _ in contents]

    def _sentences(self, columns: TextColumns) -> Iterable[TreeSentence]:
        if self.conllu is not None:
            yield from parse_conllu(read_text(self.conllu, columns), name_of(self.conllu), trees=False)
            return
        for number, (text,) in enumerate(rows_of(self.texts, (), self.file, count=1, columns=columns), 1):
            yield dataclasses.replace(sentence_of_text(text, number), file="" if self.file is None else str(self.file))


class ParsedSentence(NamedTuple):
    """A sentence's tree: words, tags ("_" = unknown), heads (numbers of words from 1; 0 = the root), relations."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]


@one_or_many
def parse(
    trained: Trained, texts: Sequence[str | Sequence[str]], *, tagger: Trained | None = None, num_beams: int = 1
) -> list[ParsedSentence]:
    """The dependency tree of each sentence, or of one; that of a blank text has no words.

    Args:
      texts: one sentence, or a list of N, which may have lists of words: `[["Ann", "sleeps"]]`, without blank ones. A
        simple rule splits other sentences into words.
      tagger: a trained tagger; parsers that read tags need it.
      num_beams: number of beams; 1 = greedy, the only choice for graph parsers.

    Raises: ValueError for a sentence that is too long, when tags are missing, for a tagger that does not fit, and for
      beams of a graph parser.
    """
    sentences = [sentence_of_text(text, number) for number, text in enumerate(require_sentences(texts), 1)]
    parser, processor = SentenceParser(trained, num_beams=num_beams), trained.processor
    if tagger is None:
        require_tags(sentences, processor)
    else:
        require_tagger(tagger, processor)
    parsed = []
    for sentence, tree in _parsed(sentences, parser, processor, tagger):
        if isinstance(tree, str):
            raise ValueError(tree)
        parsed.append(ParsedSentence(sentence.words, sentence.upos, tuple(tree.heads), tuple(tree.relations)))
    return parsed


def warm_up(trained: Trained, *, num_beams: int = 1) -> None:
    """Compiles the programs of `parse` ahead."""
    SentenceParser(trained, num_beams=num_beams).warm_up()


def sentence_of_text(text: str | Sequence[str], number: int) -> TreeSentence:
    """A text, or a list of words, as a sentence with its number."""
    placed = placed_words(text)
    words = [one_line(one.word) for one in placed]
    joined = [isinstance(text, str) and one.stop == next_.start for one, next_ in itertools.pairwise(placed)]
    joined += [False] * bool(words)  # the last word
    return dataclasses.replace(sentence_of(words, name=str(number), joined=joined), line=number)


def _parsed(
    sentences: Sequence[TreeSentence], parse: SentenceParser, processor: ParserProcessor, tagger: Trained | None
) -> list[tuple[TreeSentence, Tree | str]]:
    """Sentences with their tags, and the tree of each; or a message for a sentence that a model cannot read."""
    results: list[tuple[TreeSentence, Tree | str]] = [(sentence, Tree([], [])) for sentence in sentences]
    chosen = list[int]()
    for index, sentence in enumerate(sentences):
        problem = None if tagger is None else tagger.processor.inputs.problem(sentence.words)
        if problem is not None:
            results[index] = sentence, f"{sentence.where}: {problem}"
        elif sentence.words:
            chosen.append(index)
    tagged = [sentences[index] for index in chosen]
    if tagger is not None:
        tagged = with_predicted_tags(tagger, tagged, processor)
    for index, sentence, tree in zip(chosen, tagged, parse.trees_or_problems(tagged), strict=True):
        results[index] = sentence, tree
    return results


def _text(sentence: TreeSentence, tree: Tree | str) -> str:
    return "\n" if isinstance(tree, str) else as_text(sentence.words, tree)


def _json_line(sentence: TreeSentence, tree: Tree | str) -> str:
    fields = {
        "name": sentence.name,
        "words": list(sentence.words),
        "tags": list(sentence.upos),
        "heads": None if isinstance(tree, str) else list(tree.heads),
        "relations": None if isinstance(tree, str) else list(tree.relations),
    }
    return json.dumps(fields, ensure_ascii=False) + "\n"
