"""Evaluation of parsers: attachment scores, files of trees, and the report's sections."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxnlp.config import Count, UserPath
from jaxnlp.corpus import Split
from jaxnlp.decoding.parsing import Trees
from jaxnlp.pages.content import MarkedText
from jaxnlp.tasks import Evaluation, Evaluator, Metric, MetricKind, Scoring, Section
from jaxnlp.tasks.parsing.parser import SentenceParser, parse_of, trees_of
from jaxnlp.tasks.parsing.predicted_tags import require_tags, tag_accuracy, with_predicted_tags
from jaxnlp.tasks.parsing.scores import Tree, exact_match, scores, sections, word_results, worst
from jaxnlp.text.conllu import UNSPECIFIED, TreeSentence, universal, written
from jaxnlp.typing import Batch, Params

MAX_ERRORS = 10
"""Maximum number of wrong sentences in the report."""
PREDICTED = {
    "tag_accuracy": "tag accuracy",
    "uas_predicted_tags": "UAS with predicted tags",
    "las_predicted_tags": "LAS with predicted tags",
}
"""The metrics with the tags of a tagger: the share of right tags, and the scores of the trees."""


@dataclasses.dataclass(frozen=True)
class Validation(Evaluator):
    """Parses whole sentences: UAS and LAS with and without punctuation, by relation and by length of the arc.

    The file of predictions is CoNLL-U: the given lines with the predicted heads and relations; with a tagger, those of
    its tags, which also replace UPOS. Multiword tokens, empty nodes and comments stay; blocks without words
    are left out.
    """

    num_beams: Count = 1
    """Number of beams; 1 = greedy: the most probable transition at each step, or a graph parser's best tree."""
    tagger: UserPath | None = None
    """Run of a tagger: also parse with its predicted tags, and score these trees."""

    @property
    def metrics(self) -> Mapping[str, MetricKind]:
        titles = {} if self.tagger is None else PREDICTED
        return {name: MetricKind("words", title=title) for name, title in titles.items()}

    def compile_ahead(self, scoring: Scoring) -> None:
        super().compile_ahead(scoring)
        scoring.compile_outputs(self._parse(scoring))

    def _parse(self, scoring: Scoring) -> Callable[[Params, Batch], Trees]:
        positions = max(batch["word_mask"].shape[1] for batch in scoring.split.shapes)
        return scoring.once(parse_of, scoring.trained.model, scoring.trained.processor, self.num_beams, positions)

    def __call__(self, scoring: Scoring) -> Evaluation:
        trained, sentences = scoring.trained, scoring.split.examples
        processor = trained.processor
        if self.tagger is None:
            require_tags(sentences, processor)
        trees = trees_of(sentences, scoring.outputs(self._parse(scoring)), processor)
        measured: dict[str, Metric] = {}
        parsed = [sentence.with_tree(*tree) for sentence, tree in zip(sentences, trees, strict=True)]
        if self.tagger is not None:
            tagged = with_predicted_tags(scoring.load(self.tagger), sentences, processor)
            with_tags = SentenceParser(trained, num_beams=self.num_beams)(tagged, scoring.whole_params())
            if scoring.split.scored:
                measured = _measured_with_tags(sentences, tagged, with_tags)
            if not scoring.split.scored or not any(tag != UNSPECIFIED for one in sentences for tag in one.upos):
                trees = with_tags
            found = zip(sentences, with_tags, tagged, strict=True)
            parsed = [sentence.with_tree(*tree, upos=one.upos) for sentence, tree, one in found]
        files = {"predictions.conllu": _written(parsed, scoring.split)}
        if not scoring.split.scored:
            return Evaluation({}, files)
        words = word_results(sentences, trees)
        metrics = scoring.sums() | measured | scores(words) | {"exact_match": exact_match(sentences, trees)}
        remarks: dict[str, Any] = {"num_beams": self.num_beams}
        if self.tagger is not None:
            remarks["tagger"] = self.tagger
        return Evaluation(metrics, files, [*sections(words), *error_sections(sentences, trees)], remarks)


def _written(sentences: Sequence[TreeSentence], split: Split[TreeSentence]) -> str:
    """The text of a CoNLL-U file. In a file with other sentences too, these have empty lines."""
    if split.source is None:
        return written(sentences)
    texts = [written([sentence]) for sentence in sentences]
    named = dict(zip([split.source.names[index] for index in split.source.indices], texts, strict=True))
    return "".join(split.source.with_gaps(named, end="\n"))


def _measured_with_tags(
    sentences: Sequence[TreeSentence], tagged: Sequence[TreeSentence], trees: Sequence[Tree]
) -> dict[str, Metric]:
    """The metrics of `PREDICTED`."""
    metrics = scores(word_results(sentences, trees))
    values = (tag_accuracy(sentences, tagged), metrics["uas"], metrics["las"])
    return dict(zip(PREDICTED, values, strict=True))


def error_sections(sentences: Sequence[TreeSentence], trees: Sequence[Tree]) -> list[Section]:
    """The sentences with the most wrong words, each with its gold and its predicted tree."""
    paragraphs: list[tuple[tuple[str, bool], ...]] = []
    for index in worst(sentences, trees, MAX_ERRORS):
        sentence, tree = sentences[index], trees[index]
        gold = Tree(sentence.heads or (), sentence.relations or ())
        right = [
            (a, universal(b)) == (c, universal(d))
            for a, b, c, d in zip(gold.heads, gold.relations, tree.heads, tree.relations, strict=True)
        ]
        paragraphs.append(_described("right: ", sentence, gold, right))
        paragraphs.append(_described("found: ", sentence, tree, right))
    if not paragraphs:
        return []
    note = "Each word with its relation and its head; marked where the head or the relation is wrong."
    return [Section("Sentences with the most wrong words", MarkedText(tuple(paragraphs), note))]


def _described(title: str, sentence: TreeSentence, tree: Tree, right: Sequence[bool]) -> tuple[tuple[str, bool], ...]:
    pieces = [(title, False)]
    for word, head, relation, fits in zip(sentence.words, tree.heads, tree.relations, right, strict=True):
        of = f" \N{LEFTWARDS ARROW} {sentence.words[head - 1]} {head}" if head else ""
        pieces += [(f"{word} ({relation}{of})", not fits), (" ", False)]
    return tuple(pieces)
