"""CoNLL-U files: sentences with tags and dependency trees.

A word's line has ten columns between tabs: ID, FORM, LEMMA, UPOS, XPOS, FEATS, HEAD, DEPREL, DEPS, MISC. An empty line
ends a sentence. Lines that start with # are comments. IDs such as 8-9 are multiword tokens, IDs such as 5.1 empty
nodes: they are written, but are not words of the tree.

Source: https://universaldependencies.org/format.html
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence

from jaxnlp.corpus import DataError

COLUMNS = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
ID, FORM, LEMMA, UPOS, XPOS, FEATS, HEAD, DEPREL, DEPS, MISC = range(len(COLUMNS))
ROOT = "root"
"""The relation of the word without a head."""
UNSPECIFIED = "_"
"""The value of a column that is not given."""
_HEAD = re.compile("0|[1-9][0-9]{0,8}")
_LONGEST_ID = 40


@dataclasses.dataclass(frozen=True)
class TreeSentence:
    """A sentence of n words.

    Attributes:
      name: its sent_id, or its number in the file.
      words: forms [n].
      upos: Universal POS tags [n]; "_" = not given.
      xpos: tags of the treebank's own set [n]; "_" = not given.
      heads: the position of each word's head, from 1, and 0 for the root [n]; None = no tree.
      relations: of each word to its head, with subtypes [n]; None = no tree.
      lines: of the file, without the empty line at the end.
      line: the number of its first line.
      file: its name, for messages; "" = none.
    """

    name: str
    words: tuple[str, ...]
    upos: tuple[str, ...]
    xpos: tuple[str, ...]
    heads: tuple[int, ...] | None
    relations: tuple[str, ...] | None
    lines: tuple[str, ...]
    line: int = 1
    file: str = dataclasses.field(default="", compare=False)

    @property
    def where(self) -> str:
        """The sentence, with its file and line if any, for messages."""
        return f"{self.file}, line {self.line}, sentence {self.name}" if self.file else f"sentence {self.name}"

    @property
    def feats(self) -> tuple[str, ...]:
        """Morphological features, a text for each word [n]; "_" = none, or not given."""
        fields = (line.split("\t") for line in self.lines if not line.startswith("#"))
        return tuple(row[FEATS].strip() or UNSPECIFIED for row in fields if row[ID].isdecimal())

    def with_tags(self, tags: Mapping[str, Sequence[str]]) -> "TreeSentence":
        """The sentence with other tags [n], by column: upos, xpos or feats."""
        upos, xpos = (tuple(tags.get(name, getattr(self, name))) for name in ("upos", "xpos"))
        lines = self._lines_with({COLUMNS.index(name.upper()): values for name, values in tags.items()})
        return dataclasses.replace(self, upos=upos, xpos=xpos, lines=lines)

    def with_tree(self, heads: Sequence[int], relations: Sequence[str], upos: Sequence[str] = ()) -> "TreeSentence":
        """The sentence with another tree, and other tags if given."""
        columns = {HEAD: list(map(str, heads)), DEPREL: relations} | ({UPOS: upos} if upos else {})
        return dataclasses.replace(
            self,
            heads=tuple(heads),
            relations=tuple(relations),
            upos=tuple(upos) or self.upos,
            lines=self._lines_with(columns),
        )

    def without_tree(self) -> "TreeSentence":
        """The sentence with _ as HEAD and DEPREL of each word."""
        nothing = (UNSPECIFIED,) * len(self.words)
        lines = self._lines_with({HEAD: nothing, DEPREL: nothing})
        return dataclasses.replace(self, heads=None, relations=None, lines=lines)

    def _lines_with(self, columns: Mapping[int, Sequence[str]]) -> tuple[str, ...]:
        """The lines with other columns: a value for each word, by column index."""
        lines, word = list(self.lines), 0
        for index, line in enumerate(lines):
            fields = line.split("\t")
            if line.startswith("#") or not fields[ID].isdecimal():
                continue
            for column, values in columns.items():
                fields[column] = values[word]
            lines[index] = "\t".join(fields)
            word += 1
        return tuple(lines)


def sentence_of(
    words: Sequence[str],
    upos: Sequence[str] = (),
    heads: Sequence[int] | None = None,
    relations: Sequence[str] | None = None,
    *,
    name: str = "1",
    joined: Sequence[bool] = (),
) -> TreeSentence:
    """A sentence that does not come from a file.

    Args:
      words: at least one character each.
      upos: their tags; () = not known.
      heads: their heads; None = no tree.
      relations: their relations.
      name: of the sentence.
      joined: whether no blank follows a word; () = a blank follows each.

    Raises: ValueError for words that are empty or have tabs or line breaks.
    """
    for word in words:
        if not word or any(character in word for character in "\t\n\r"):
            raise ValueError(f"a word must not be empty or have a tab or a line break, got {word!r}")
    tags = tuple(upos) or (UNSPECIFIED,) * len(words)
    joined = tuple(joined) or (False,) * len(words)
    text = "".join(word if close else f"{word} " for word, close in zip(words, joined, strict=True))
    lines = [f"# sent_id = {name}", f"# text = {text.rstrip()}"]
    for index, (word, tag, close) in enumerate(zip(words, tags, joined, strict=True)):
        head, relation = (UNSPECIFIED, UNSPECIFIED)
        if heads is not None and relations is not None:
            head, relation = str(heads[index]), relations[index]
        misc = "SpaceAfter=No" if close else "_"
        lines.append("\t".join([str(index + 1), word, "_", tag, "_", "_", head, relation, "_", misc]))
    return TreeSentence(
        name,
        tuple(words),
        tags,
        (UNSPECIFIED,) * len(words),
        None if heads is None else tuple(heads),
        None if relations is None else tuple(relations),
        tuple(lines),
    )


def written(sentences: Sequence[TreeSentence]) -> str:
    """The text of a CoNLL-U file."""
    return "".join("\n".join(sentence.lines) + "\n\n" for sentence in sentences)


def parse_conllu(text: str, file: str, *, trees: bool = True) -> list[TreeSentence]:
    """The sentences of a file's text. A sentence with only comments has no words.

    Args:
      text: of the file, with LF at line ends.
      file: its name, for messages.
      trees: whether HEAD and DEPREL are read; otherwise they may be anything.

    Raises: DataError naming the file, the line and the sentence, what was found and what was expected.
    """
    blocks = enumerate(_blocks(text), 1)
    sentences = [_sentence(lines, first, number, file, trees=trees) for number, (first, lines) in blocks]
    if not any(sentence.words for sentence in sentences):
        raise DataError(f"{file} has no sentences; expected CoNLL-U, a word a line with 10 columns between tabs")
    return sentences


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """The lines of each sentence, and the number of the first one."""
    lines: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            lines.append(line)
        elif lines:
            yield number - len(lines), lines
            lines = []
    if lines:
        yield number - len(lines) + 1, lines


def _sentence(lines: list[str], first: int, number: int, file: str, *, trees: bool) -> TreeSentence:
    name = str(number)
    words: list[list[str]] = []
    line_numbers: list[int] = []
    stop, place = 0, ""
    for line_number, line in enumerate(lines, first):
        if line.startswith("#"):
            key, _, value = line[1:].partition("=")
            name = value.strip() if key.strip() == "sent_id" else name
            continue
        where = f"{file}, line {line_number}, sentence {name}"
        identifier, *rest = line.split("\t")
        fields = [identifier, *map(str.strip, rest)]
        if len(fields) != len(COLUMNS):
            raise DataError(
                f"{where}: expected CoNLL-U, 10 columns with tabs between them, got {len(fields)}{_hint(line, fields)}"
            )
        if _is_word(fields[ID], where):
            if fields[ID] != str(len(words) + 1):
                ends = "; an empty line ends a sentence" * (fields[ID] == "1")
                raise DataError(f"{where}: expected the ID {len(words) + 1}, got {fields[ID]!r}{ends}")
            if not fields[FORM]:
                raise DataError(f"{where}: the word has no FORM; write _ for an unknown one")
            words.append(fields)
            line_numbers.append(line_number)
        else:
            stop = _check_place(fields[ID], len(words), stop, where)
            place = where if stop > len(words) else place
    if stop > len(words):
        raise DataError(f"{place}: the multiword token ends with word {stop}, but the last word is {len(words)}")
    heads, relations = None, None
    if trees:
        heads, relations = _tree(words, [f"{file}, line {line}, sentence {name}" for line in line_numbers])
    forms, upos, xpos = (tuple(fields[column] for fields in words) for column in (FORM, UPOS, XPOS))
    upos, xpos = (tuple(tag or UNSPECIFIED for tag in tags) for tags in (upos, xpos))
    return TreeSentence(name, forms, upos, xpos, heads, relations, tuple(lines), first, file)


def _hint(line: str, fields: Sequence[str]) -> str:
    if len(line.split()) == len(COLUMNS) and len(fields) < len(COLUMNS):
        return "; some columns have spaces between them: replace these by tabs"
    if len(fields) == 1:
        return ""
    if len(fields) > len(COLUMNS):
        return "; keep the first ten: cut -f 1-10 FILE > NEW_FILE"
    return f"; write {UNSPECIFIED} in a column that is not given"


def _is_word(identifier: str, where: str) -> bool:
    """Whether an ID is a word's; otherwise it is a multiword token's or an empty node's."""
    if identifier.isdecimal():
        return True
    for separator in "-.":
        first, between, last = identifier.partition(separator)
        if between and first.isdecimal() and last.isdecimal() and len(identifier) < _LONGEST_ID:
            return False
    raise DataError(f"{where}: expected an ID such as 8, 8-9 or 8.1, got {identifier!r:.40}")


def _check_place(identifier: str, words: int, stop: int, where: str) -> int:
    """Checks that a multiword token comes before its first word, and an empty node after the word of its number.

    Args:
      identifier: of the token or the node.
      words: number of words before it.
      stop: the last word of the previous multiword token; 0 = none.
      where: for messages.

    Returns: the last word of the last multiword token.
    """
    number, hyphen, last = identifier.partition("-")
    if not hyphen:
        if int(number.partition(".")[0]) != words:
            raise DataError(f"{where}: expected an empty node {words}.1 or the ID {words + 1}, got {identifier!r}")
        return stop
    if stop > words:
        raise DataError(f"{where}: the multiword token {identifier} begins within another one")
    if int(number) != words + 1 or int(last) <= int(number):
        raise DataError(f"{where}: expected a multiword token that begins with {words + 1}, got {identifier!r}")
    return int(last)


def _tree(words: list[list[str]], places: Sequence[str]) -> tuple[tuple[int, ...] | None, tuple[str, ...] | None]:
    """Heads and relations; None and None if no word has a head. Args: places: where each word is, for messages."""
    if all(fields[HEAD] == UNSPECIFIED for fields in words):
        return None, None
    heads = []
    for fields, place in zip(words, places, strict=True):
        if not _HEAD.fullmatch(fields[HEAD]) or int(fields[HEAD]) > len(words):
            got = f"{fields[HEAD]!r:.40}"
            raise DataError(f"{place}: the HEAD of {fields[FORM]!r} must be a number from 0 to {len(words)}, got {got}")
        if fields[DEPREL] in ("", UNSPECIFIED):
            raise DataError(f"{place}: {fields[FORM]!r} has a HEAD and no DEPREL")
        heads.append(int(fields[HEAD]))
    problem = tree_problem(heads)
    if problem is not None:
        word, message = problem
        raise DataError(f"{places[word - 1]}: {message}")
    for fields, place in zip(words, places, strict=True):
        if (universal(fields[DEPREL]) == ROOT) != (fields[HEAD] == "0"):
            raise DataError(
                f"{place}: {fields[FORM]!r} has the HEAD {fields[HEAD]} and the relation "
                f"{fields[DEPREL]}; expected the relation root where the HEAD is 0, and only there"
            )
    return tuple(heads), tuple(fields[DEPREL] for fields in words)


def tree_problem(heads: Sequence[int]) -> tuple[int, str] | None:
    """The position of a word, from 1, at which heads are not a tree with one root, and the reason; None = they are.

    Args: heads: the position of each word's head, from 0 to n [n].
    """
    roots = [word for word, head in enumerate(heads, 1) if head == 0]
    if len(roots) > 1:
        return roots[1], f"expected one root, got {len(roots)}: words {', '.join(map(str, roots))} have HEAD 0"
    known = {0}
    for start in range(1, len(heads) + 1):
        path: dict[int, None] = {}  # in order, and quick to look up
        word = start
        while word not in known:
            if word in path:
                words = list(path)
                cycle = [*words[words.index(word) :], word]
                return word, f"expected a tree, got a cycle: the heads of the words {' -> '.join(map(str, cycle))}"
            path[word] = None
            word = heads[word - 1]
        known.update(path)
    return None


def universal(relation: str) -> str:
    """A relation without its subtype: nsubj of nsubj:pass."""
    return relation.partition(":")[0]
