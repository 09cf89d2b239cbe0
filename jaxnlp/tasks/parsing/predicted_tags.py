"""Tags from a trained tagger instead of a treebank."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from jaxnlp.tasks import Metric, Trained
from jaxnlp.tasks.tagging import Tagging
from jaxnlp.tasks.tagging.inference import label_sentences
from jaxnlp.text.conllu import UNSPECIFIED, TreeSentence
from jaxnlp.text.parser_processor import ParserProcessor


def require_tagger(tagger: Any, processor: ParserProcessor) -> None:
    """Raises ValueError when a run does not predict the tags that a parser reads."""
    if processor.tag_column != "upos":
        raise ValueError(
            f"a tagger predicts Universal POS tags, and this parser reads data.tags {processor.tag_column}; give a "
            "parser that was trained with --data.tags upos"
        )
    if not isinstance(tagger, Trained):
        raise ValueError(f"tagger must be a trained tagger, such as load_run(FOLDER), got {tagger!r:.60}")
    if not isinstance(tagger.task, Tagging):
        raise ValueError(f"{tagger.name} is not a tagger; give --tagger a run of a tagger")
    parts = tagger.processor.by_part
    labels = parts.get("upos", tagger.processor).labels or tuple(parts)
    if not {*labels} & {*processor.tags}:
        raise ValueError(
            f"the tagger {tagger.name} predicts {', '.join(labels[:5])}, and the parser reads "
            f"{', '.join(processor.tags[:5])}; give one that was trained on Universal POS tags"
        )


def with_predicted_tags(
    tagger: Trained, sentences: Sequence[TreeSentence], processor: ParserProcessor
) -> list[TreeSentence]:
    """The sentences with the Universal POS tags that a tagger predicts, for each sentence alone.

    Args:
      tagger: the trained tagger.
      sentences: sentences with or without tags; each has a word.
      processor: of the parser that reads the tags.

    Raises: ValueError as `require_tagger`, and naming the sentence, for a word that is too long for the tagger's BERT.
    """
    require_tagger(tagger, processor)
    for sentence in sentences:
        if problem := tagger.processor.inputs.problem(sentence.words):
            raise ValueError(f"{sentence.where}: {problem}")
    labelled = [one.labels for one in label_sentences(tagger, [one.words for one in sentences])]
    tags = [tagger.processor.divide(labels).get("upos", labels) for labels in labelled]
    return [dataclasses.replace(one, upos=tuple(upos)) for one, upos in zip(sentences, tags, strict=True)]


def require_tags(sentences: Sequence[TreeSentence], processor: ParserProcessor) -> None:
    """Raises ValueError when a parser reads tags and no word has one. A few words may have the unknown tag."""
    words = sum(len(sentence.words) for sentence in sentences)
    if not words or sum(map(processor.untagged, sentences)) < words:
        return
    tagger = "--tagger RUN (tagger=RUN in Python)"
    if processor.tag_column != "upos":
        tagger = f"a parser that was trained with --data.tags upos, together with {tagger}"
    raise ValueError(
        f"{sentences[0].where}: this parser reads tags ({processor.tag_column}), and the words have none; "
        f"give {tagger}, a CoNLL-U file with tags, or a parser that was trained with --data.tags none"
    )


def tag_accuracy(sentences: Sequence[TreeSentence], tagged: Sequence[TreeSentence]) -> Metric:
    """The share of right tags among the words with a tag in the treebank; 0 if no word has one."""
    pairs = [pair for a, b in zip(sentences, tagged, strict=True) for pair in zip(a.upos, b.upos, strict=True)]
    right = [gold == predicted for gold, predicted in pairs if gold != UNSPECIFIED]
    return Metric(sum(right) / max(len(right), 1), len(right))
