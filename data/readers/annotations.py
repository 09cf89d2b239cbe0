"""Annotated sentences as JSON: JSON lines, or one list, in the formats of this library and of annotation tools.

    written by                text        entities
    jaxnlp                    words       labels: a label for each word
    jaxnlp                    text        entities: [{"start": 0, "end": 3, "type": "PER"}], or [[0, 3, "PER"]]
    spaCy                     a list: [text, {"entities": [[0, 3, "PER"]]}]
    NER Annotator             one object with the list annotations, whose items are those of spaCy
    Doccano                   text        label or labels: [[0, 3, "PER"]]
    Doccano with relations    text        entities: [{"start_offset": 0, "end_offset": 3, "label": "PER"}]
    Prodigy                   text        spans: [{"start": 0, "end": 3, "label": "PER"}]
    Label Studio, JSON        data.text   annotations[].result[].value: {"start": 0, "end": 3, "labels": ["PER"]}
    Label Studio, JSON-MIN    text        label: [{"start": 0, "end": 3, "labels": ["PER"]}]

The keys of each object decide its format. Label Studio's users choose the key of the text: without a key `text`, it is
the only key whose string has the texts of entities at their positions.

Positions count Unicode characters (code points) from 0, and `end` is after the last character. Texts of entities, as in
Label Studio, are compared with the characters at their positions. JavaScript counts UTF-16 code units: positions that
fit the texts only in these units are converted. Label Studio's positions are such units, unless the texts of entities
show code points.

A text is split into words as for predictions, and where an entity starts or ends. Other keys, such as Prodigy's tokens,
are ignored.
"""

import bisect
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from data import DataError, errors_as
from data.readers.raw_sentences import Counts, RawSentence
from jaxnlp.input_files.json_objects import json_objects
from jaxnlp.input_files.text_files import has_surrogate, is_blank
from jaxnlp.text.columns import SHOWN
from jaxnlp.text.tag_schemes import LabelledSpan, labels_of_spans
from jaxnlp.text.word_split import PlacedWord, Unit, split_words

SPAN_FIELDS = ("entities", "spans", "label", "labels")
"""Keys of the entities of an object with a text."""
WORD_FIELDS, LABEL_FIELDS = ("words", "tokens"), ("labels", "ner_tags", "tags")
"""Keys of the words of an object that is split already, and of their labels."""
_SPACE = re.compile(r"(?:\s|\\n)+")

Words = tuple[tuple[str, ...], tuple[str, ...] | None]
"""Words and their labels; None = no labels."""


class _Entity(NamedTuple):
    """An entity of a file, in its units of positions; text: None = not in the file."""

    start: int
    stop: int
    type: str
    text: str | None


class _Annotated(NamedTuple):
    """A text, and its entities as in the file; None = no annotation."""

    text: str
    entities: list[Any] | None


def annotated_sentences(text: str, file: str, unit: Unit, counts: Counts) -> Iterator[RawSentence]:
    """The sentences of a file's text; their labels are BIO if the file has entities.

    Args:
      text: the text of the file, with LF at line ends.
      file: its name, for messages.
      unit: units into which texts are split.
      counts: of skipped sentences, without words or with a rejected annotation.

    Raises: DataError naming the file, the line and the sentence, with found and expected content.
    """
    values = list(_values(text, file))
    key = _text_key(value for _, value in values)
    for number, (line, value) in enumerate(values, 1):
        where = f"{file}, line {line} (sentence {number})"
        position = f"sentence {number}, line {line}"
        match value:
            case [str() as content, dict() as annotation]:  # spaCy
                value = {**annotation, "text": content}
        if not isinstance(value, dict):
            raise DataError(f"{where}: expected an object, got {type(value).__name__}")
        if name := next((name for name in WORD_FIELDS if _has_words(value, name)), None):
            words, labels = _split_already(value, name, where)
        else:
            annotated = _annotated(value, key, where, position, counts)
            if annotated is None:
                continue
            words, labels = _labelled_words(annotated, unit, where, position, counts)
        broken = next(filter(has_surrogate, (*words, *(labels or ()))), None)
        if broken is not None:
            raise DataError(f"{where}: half of a surrogate pair, which is not a character: {broken[:40]!a}; remove it")
        if words:
            has_spans = name is None and labels is not None
            yield RawSentence((line,) * len(words), number, words, labels, has_spans=has_spans)
        else:
            counts.add_sentence("blank and skipped", position)


def _values(text: str, file: str) -> Iterator[tuple[int, Any]]:
    """The values of a file, or of NER Annotator's list, which has null for a blank text."""
    for line, value in json_objects(text, file):
        match value:
            case {"classes": _, "annotations": list() as inside}:
                yield from ((line, one) for one in inside if one is not None)
            case _:
                yield line, value


def _has_words(fields: dict[str, Any], name: str) -> bool:
    """Whether a field is a list of words; Prodigy's tokens are objects, or are empty next to the text. A list of the
    text's entities, perhaps without any, counts more than words without labels."""
    value = fields.get(name)
    if not isinstance(value, list) or (not value and "text" in fields):
        return False
    labelled = any(fields.get(label) and not _has_entities(fields[label]) for label in LABEL_FIELDS)
    lists = [fields[spans] for spans in SPAN_FIELDS if isinstance(fields.get(spans), list)]
    if "text" in fields and not labelled and any(not one or _has_entities(one) for one in lists):
        return False
    return not any(isinstance(item, dict) for item in value)


def _split_already(fields: dict[str, Any], words_name: str, where: str) -> Words:
    """The words and the labels of {"words": [...], "labels": [...]}, or with the names of the library datasets."""
    label_name = next((name for name in LABEL_FIELDS if name in fields), "labels")
    words, labels = fields[words_name], fields.get(label_name)
    if isinstance(labels, list) and labels and all(isinstance(label, int) for label in labels):
        raise DataError(f"{where}: expected the names of labels as {label_name}, got their numbers; write B-PER for 1")
    for name, value in ((words_name, words), (label_name, [] if labels is None else labels)):
        if not isinstance(value, list):
            raise DataError(f"{where}: {name} must be a list of strings, got {value!r:.40}")
        for index, item in enumerate(value, 1):
            if not isinstance(item, str) or is_blank(item):
                raise DataError(
                    f"{where}: {name} must be a list of strings that are not blank; item {index} is {item!r:.40}"
                )
        # Files of predictions have a word a line, with tabs between the columns.
        broken = [item for item in value if any(character in item for character in "\t\n\r")]
        if broken:
            raise DataError(f"{where}: expected {name} without tabs and line breaks, got {broken[0]!r}")
    if labels is not None and len(labels) != len(words):
        raise DataError(f"{where}: expected a label for each of {len(words)} words, got {len(labels)} labels")
    return tuple(map(str.strip, words)), None if labels is None else tuple(map(str.strip, labels))


def _text_key(values: Iterable[Any]) -> str | None:
    """The key of the text in a file of Label Studio: the only one whose string fits the entities of an object; None =
    no object shows it, or they have a key `text`."""
    for value in values:
        data = value.get("data", value) if isinstance(value, dict) else None
        if isinstance(data, dict) and "text" not in data and (entities := list(_own_texts(value))):
            fitting = [key for key, one in data.items() if isinstance(one, str) and _in_characters(entities, one, True)]
            if len(fitting) == 1:
                return fitting[0]
    return None


def _own_texts(value: Any) -> Iterator[_Entity]:
    """The entities of Label Studio that have their text, anywhere in a value."""
    match value:
        case {"start": int() as start, "end": int() as stop, "text": str() as text, "labels": list()}:
            yield _Entity(start, stop, "", text)
        case dict() | list():
            for inside in value.values() if isinstance(value, dict) else value:
                yield from _own_texts(inside)


def _annotated(fields: dict[str, Any], key: str | None, where: str, position: str, counts: Counts) -> _Annotated | None:
    """The text of an object, perhaps under this key, and its entities; None = the object is skipped and counted."""
    if isinstance(fields.get("data"), dict) and "text" not in fields:
        return _of_label_studio(fields, key, where, position, counts)
    if fields.get("answer", "accept") != "accept":  # Prodigy
        counts.add_sentence(f'answered with "{fields["answer"]}" and skipped', position)
        return None
    text = fields.get("text", fields.get(key or ""))
    if not isinstance(text, str):
        if name := next((name for name in WORD_FIELDS if isinstance(fields.get(name), str)), None):
            raise DataError(f"{where}: {name} must be a list of words, got the text {fields[name][:40]!r}")
        there = ", ".join(fields) or "neither"
        rename = "; rename the key of the text to text" if any(isinstance(one, str) for one in fields.values()) else ""
        raise DataError(f"{where}: expected a string as text, or a list as words, got {there}{rename}")
    present = [name for name in dict.fromkeys((*SPAN_FIELDS, *fields)) if name in fields]
    names = [name for name in present if name in SPAN_FIELDS or _has_regions(fields[name])]
    filled = [name for name in names if _has_entities(fields[name])]
    if len(filled) > 1:
        raise DataError(f"{where}: expected one list of entities, got {' and '.join(filled)}; keep one of them")
    name = next(iter(filled or names), "")
    entities = fields.get(name)
    if entities is None and ("answer" in fields or "annotation_id" in fields):
        return _Annotated(text, [])  # Prodigy and Label Studio leave out a list without entities.
    if entities is not None and not isinstance(entities, list):
        raise DataError(f"{where}: {name} must be a list, got {type(entities).__name__}")
    return _Annotated(text, entities)


def _has_entities(value: Any) -> bool:
    """Whether a value is a list with an entity; a list of strings has the classes of the text."""
    return isinstance(value, list) and any(isinstance(one, dict | list) for one in value)


def _has_regions(value: Any) -> bool:
    """Whether a value of JSON-MIN, whose key the user chooses, is a list of entities."""
    return isinstance(value, list) and any(isinstance(one, dict) and "labels" in one for one in value)


def _of_label_studio(
    task: dict[str, Any], key: str | None, where: str, position: str, counts: Counts
) -> _Annotated | None:
    """The text and the entities of a task; None = an unfinished annotation."""
    data = task["data"]
    key = next((name for name in ("text", key) if name in data), None)
    texts = [value for value in data.values() if isinstance(value, str)] if key is None else [data[key]]
    if len(texts) != 1 or not isinstance(texts[0], str):
        rename = "; rename the key of the text to text" if len(texts) > 1 else ""
        raise DataError(f"{where}: expected a string as data.text, got {', '.join(data) or 'no data'}{rename}")
    annotations = task.get("annotations", task.get("completions")) or []
    if not isinstance(annotations, list) or not all(isinstance(one, dict) for one in annotations):
        raise DataError(f"{where}: expected annotations as objects, as in Label Studio's export JSON")
    finished = [one for one in annotations if not one.get("was_cancelled")]
    if not finished:
        counts.add_sentence("without a finished annotation and skipped", position)
        return None
    entities = [_regions(one, where) for one in finished]
    chosen = next((index for index, one in enumerate(finished) if one.get("ground_truth")), None)
    if chosen is None and any(one != entities[0] for one in entities):
        what = "annotated in several ways without a ground truth and read as in the first annotation"
        counts.add_sentence(what, position)
    return _Annotated(texts[0], entities[chosen or 0])


def _regions(annotation: dict[str, Any], where: str) -> list[Any]:
    """The labelled regions of an annotation's text, without other results, such as relations and choices."""
    regions, results = [], annotation.get("result") or []
    if not isinstance(results, list):
        raise DataError(f"{where}: expected a list as result, as in Label Studio's export JSON, got {results!r:.40}")
    for one in results:
        kind = str(one.get("type", "")) if isinstance(one, dict) else "no object"
        if kind == "labels":
            regions.append(one.get("value"))
        elif kind.endswith("labels") or not isinstance(one, dict):
            raise DataError(f"{where}: expected results of the type labels, which are regions of a text, got {kind}")
    return sorted(regions, key=repr)


def _labelled_words(annotated: _Annotated, unit: Unit, where: str, position: str, counts: Counts) -> Words:
    text, entities = annotated
    spans = None if entities is None else _spans(entities, text, where)
    whole = split_words(text, unit)
    placed = _split_at(whole, {position for span in spans or () for position in span[:2]})
    if len(placed) > len(whole):  # perhaps wrong positions
        counts.add_sentence("divided inside a word, where an entity begins or ends", position)
    words = tuple(word for word, _, _ in placed)
    if spans is None:
        return words, None
    for start, stop, kind in spans:
        if is_blank(text[start:stop]):
            raise DataError(f"{where}: expected words from {start} to {stop}, the entity {kind}, got nothing to see")
    starts = [word.start for word in placed]
    inner = [
        LabelledSpan(bisect.bisect_left(starts, span.start), bisect.bisect_left(starts, span.stop), span.type)
        for span in spans
    ]
    with errors_as(DataError, where):
        return words, tuple(labels_of_spans(inner, len(words), "bio"))


def _entity(value: Any, where: str) -> _Entity:
    """An entity from [0, 5, "PER"], or an object such as {"start": 0, "end": 5, "type": "PER"}."""
    entity: Any = value
    text = None
    if isinstance(value, dict):
        start, stop = (value.get(name, value.get(f"{name}_offset")) for name in ("start", "end"))
        kind = value.get("type", value.get("label"))
        if kind is None and isinstance(kinds := value.get("labels"), list):
            if len(kinds) != 1:
                got = ", ".join(map(str, kinds)) or "none"
                raise DataError(f"{where}: expected one label for the text from {start} to {stop}, got {got:.60}")
            kind = kinds[0]
        entity, text = [start, stop, kind], value.get("text")
    fits = isinstance(entity, list) and len(entity) == 3
    if fits:  # pandas writes a column of whole numbers in which some are missing as 4.0
        entity = [int(one) if isinstance(one, float) and one.is_integer() else one for one in entity]
    fits = fits and all(type(offset) is int for offset in entity[:2])
    if not fits or not isinstance(entity[2], str) or not entity[2].strip():
        raise DataError(f'{where}: expected {{"start": 0, "end": 5, "type": "PER"}}, got {str(value)[:SHOWN]}')
    return _Entity(entity[0], entity[1], entity[2], text if isinstance(text, str) else None)


def _spans(values: Sequence[Any], text: str, where: str) -> list[LabelledSpan]:
    """The entities of a file, each once, with positions in characters."""
    entities = [_entity(one, where) for one in values]
    label_studio = any(isinstance(one, dict) and "labels" in one for one in values)
    found = _in_characters(entities, text, label_studio)
    if found is None:
        tried = [*entities, *_from_utf16(entities, text)]
        problem = next(filter(None, (_problem(one, text) for one in tried)))
        raise DataError(f"{where}: {problem}")
    return list(dict.fromkeys(LabelledSpan(*one[:3]) for one in found))


def _in_characters(entities: Sequence[_Entity], text: str, label_studio: bool) -> Sequence[_Entity] | None:
    """The entities with positions in characters, if they fit the text in characters or in UTF-16 code units.

    Label Studio counts UTF-16 code units, others count characters. The other unit is tried if entities have their text.
    """
    converted, has_texts = _from_utf16(entities, text), any(one.text is not None for one in entities)
    readings = [converted, entities] if label_studio else [entities, converted]
    fitting = (one for one in readings[: 1 + has_texts] if not any(_problem(entity, text) for entity in one))
    return next(fitting, None)


def _from_utf16(entities: Sequence[_Entity], text: str) -> list[_Entity]:
    """The entities with positions in characters, from positions in UTF-16 code units; -1 = inside a character."""
    sizes = (1 + (ord(character) > 0xFFFF) for character in text)
    characters = {unit: index for index, unit in enumerate(itertools.accumulate(sizes, initial=0))}
    return [one._replace(start=characters.get(one.start, -1), stop=characters.get(one.stop, -1)) for one in entities]


def _problem(entity: _Entity, text: str) -> str | None:
    """Why an entity does not fit its text."""
    start, stop, kind, shown = entity
    if not 0 <= start < stop <= len(text):
        return f"expected 0 <= start < end <= {len(text)}, the length of the text, got {start} and {stop}"
    if shown is not None and _SPACE.sub("", shown) != _SPACE.sub("", text[start:stop]):
        actual = text[start:stop][:SHOWN]
        return f"the characters {start} to {stop} are {actual!r}, but the entity {kind} has the text {shown[:SHOWN]!r}"
    return None


def _split_at(words: Sequence[PlacedWord], edges: set[int]) -> list[PlacedWord]:
    """The words, split where an entity starts or ends inside a word."""
    pieces, ordered = [], sorted(edges)
    for word, start, stop in words:
        cuts = [start, *ordered[bisect.bisect_right(ordered, start) : bisect.bisect_left(ordered, stop)], stop]
        pieces += [PlacedWord(word[a - start : b - start], a, b) for a, b in itertools.pairwise(cuts)]
    return pieces
