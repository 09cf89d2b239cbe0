"""Attachment scores of trees, also by relation and by length of the arc.

UAS is the share of words with the right head, and LAS of words with the right head and relation. As in the CoNLL 2018
shared task on gold words, punctuation counts, and relations are compared without their subtypes: a predicted nsubj is
right if the gold relation is nsubj:pass.

Source: Zeman et al. 2018, section 4, and its script conll18_ud_eval.py.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxnlp.pages.content import Line, Lines, Table
from jaxnlp.tasks import Metric, Section
from jaxnlp.text.conllu import TreeSentence, universal

SCORES = {
    "uas": "UAS",
    "las": "LAS",
    "uas_without_punctuation": "UAS without punctuation",
    "las_without_punctuation": "LAS without punctuation",
    "las_with_subtypes": "LAS with subtypes",
}
"""Shares of words. Words without punctuation are those whose gold relation is not punct."""
PUNCTUATION = "punct"
LENGTH_BOUNDS = (1, 2, 3, 4, 6, 9, 14, 24)
"""Arcs are grouped by length: up to each of these, and longer."""
MAX_CONFUSIONS = 20
MAX_OPEN = 20
"""The table of relations is folded if it has more rows than this."""
MAX_CURVE = 30
"""Maximum arc length of the curve."""


class Tree(NamedTuple):
    """A tree of n words: heads [n], 0 for the root, and relations [n]."""

    heads: Sequence[int]
    relations: Sequence[str]


class WordResults(NamedTuple):
    """All W words of the sentences.

    Attributes:
      head: whether its head is right [W] bool.
      relation, subtype: whether its relation is right, without and with the subtype [W] bool.
      gold, predicted: the relations, without subtypes [W].
      length: of the gold arc; 0 for roots [W] int.
    """

    head: np.ndarray
    relation: np.ndarray
    subtype: np.ndarray
    gold: list[str]
    predicted: list[str]
    length: np.ndarray


def word_results(sentences: Sequence[TreeSentence], trees: Sequence[Tree]) -> WordResults:
    """Compares trees with the gold trees. Raises: ValueError when a sentence does not have a gold tree."""
    head, subtype, gold, predicted, length = list[bool](), list[bool](), list[str](), list[str](), list[int]()
    for sentence, tree in zip(sentences, trees, strict=True):
        if sentence.heads is None or sentence.relations is None:
            raise ValueError(f"sentence {sentence.name} has no tree to compare with")
        head += [a == b for a, b in zip(sentence.heads, tree.heads, strict=True)]
        subtype += [a == b for a, b in zip(sentence.relations, tree.relations, strict=True)]
        gold += map(universal, sentence.relations)
        predicted += map(universal, tree.relations)
        length += [abs(word - right) if right else 0 for word, right in enumerate(sentence.heads, 1)]
    relation = [a == b for a, b in zip(gold, predicted, strict=True)]
    return WordResults(np.array(head), np.array(relation), np.array(subtype), gold, predicted, np.array(length))


def scores(words: WordResults) -> dict[str, Metric]:
    """The metrics of `SCORES`. A share of no words is 0, for example if all words are punctuation."""
    kept = np.array([relation != PUNCTUATION for relation in words.gold])
    labelled = words.head & words.relation
    values = {
        "uas": words.head,
        "las": labelled,
        "uas_without_punctuation": words.head[kept],
        "las_without_punctuation": labelled[kept],
        "las_with_subtypes": words.head & words.subtype,
    }
    return {name: Metric(float(right.mean()) if len(right) else 0.0, len(right)) for name, right in values.items()}


def exact_match(sentences: Sequence[TreeSentence], trees: Sequence[Tree]) -> Metric:
    """The share of sentences whose words are all right in LAS."""
    right = [
        (tuple(tree.heads), [*map(universal, tree.relations)])
        == (sentence.heads, [*map(universal, sentence.relations or ())])
        for sentence, tree in zip(sentences, trees, strict=True)
    ]
    return Metric(float(np.mean(right)), len(right))


def sections(words: WordResults) -> list[Section]:
    """For the report: scores by relation and by length, and confusions of relations."""
    return [
        Section("Relations", _by_relation(words)),
        Section("Length of arcs", _by_length(words)),
        Section("Length of arcs: curve", _curve(words)),
        Section("Relations taken for others", _confusions(words)),
    ]


def _by_relation(words: WordResults) -> Table:
    labelled = words.head & words.relation
    rows = []
    for relation, count in Counter(words.gold).most_common():
        own, predicted = (np.array(names) == relation for names in (words.gold, words.predicted))
        precision = float(labelled[predicted].mean()) if predicted.any() else 0.0
        recall = float(labelled[own].mean())
        f1 = 2.0 * precision * recall / (precision + recall) if precision + recall else 0.0
        rows.append((relation, count, float(words.head[own].mean()), recall, precision, f1))
    header = ("relation", "words", "UAS", "LAS (recall)", "precision", "F1")
    note = "Precision is the share of right arcs among those that were found with the relation."
    return Table(header, tuple(rows), bars=(2, 3, 4, 5), note=note, folded=len(rows) > MAX_OPEN)


def _groups(words: WordResults) -> list[tuple[str, np.ndarray]]:
    """Names of groups by length, and which words are in each."""
    groups = [("root", words.length == 0)]
    least = 1
    for most in LENGTH_BOUNDS:
        name = str(most) if most == least else f"{least}-{most}"
        groups.append((name, (words.length >= least) & (words.length <= most)))
        least = most + 1
    return [*groups, (f"{least} and more", words.length >= least)]


def _by_length(words: WordResults) -> Table:
    labelled = words.head & words.relation
    rows = tuple(
        (name, int(chosen.sum()), float(words.head[chosen].mean()), float(labelled[chosen].mean()))
        for name, chosen in _groups(words)
        if chosen.any()
    )
    note = (
        "UAS is the share of words with the right head, and LAS the share with the right head and relation. "
        "The length of an arc is the distance of the word from its right head; the root has none."
    )
    return Table(("length", "words", "UAS", "LAS"), rows, bars=(2, 3), note=note)


def _curve(words: WordResults) -> Lines:
    labelled = words.head & words.relation
    lengths = [n for n in range(1, MAX_CURVE + 1) if (words.length == n).any()]
    lines = [
        Line(name, tuple(map(float, lengths)), tuple(float(right[words.length == n].mean()) for n in lengths))
        for name, right in (("UAS", words.head), ("LAS", labelled))
    ]
    return Lines(tuple(lines), "length of the arc", "share of right words")


def _confusions(words: WordResults) -> Table:
    wrong = Counter((a, b) for a, b in zip(words.gold, words.predicted, strict=True) if a != b)
    with_head = Counter(
        (a, b) for a, b, right in zip(words.gold, words.predicted, words.head, strict=True) if a != b and right
    )
    rows = tuple((a, b, count, with_head[a, b]) for (a, b), count in wrong.most_common(MAX_CONFUSIONS))
    return Table(("relation", "taken for", "words", "of these with the right head"), rows, folded=True)


def worst(sentences: Sequence[TreeSentence], trees: Sequence[Tree], limit: int) -> list[int]:
    """The indices of the sentences with the most wrong words, in LAS."""
    wrong = []
    for sentence, tree in zip(sentences, trees, strict=True):
        words = word_results([sentence], [tree])
        wrong.append(int((~(words.head & words.relation)).sum()))
    order = sorted(range(len(wrong)), key=lambda index: (-wrong[index], index))
    return [index for index in order[:limit] if wrong[index]]
