import json

import pytest

from data import DataError
from data.readers.annotations import annotated_sentences
from data.readers.raw_sentences import Counts

TEXT = "Ann-Marie is in New York."
LABELS = ("B-PER", "O", "O", "B-LOC", "I-LOC", "O")


def read(text, unit="words", counts=None):
    text = text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)
    return list(annotated_sentences(text, "x.json", unit, Counts() if counts is None else counts))


def region(start, end, text, label="PER", **rest):
    """A result of Label Studio."""
    value = {"start": start, "end": end, "text": text, "labels": [label]}
    return {"value": value, "id": "a", "from_name": "label", "to_name": "text", "type": "labels", **rest}


def task(*annotations, text=TEXT, **rest):
    """A task of Label Studio, with the results of each annotation."""
    done = [one if isinstance(one, dict) else {"id": 1, "was_cancelled": False, "result": one} for one in annotations]
    return {"id": 7, "data": {"text": text}, "annotations": done, "predictions": [], **rest}


@pytest.mark.parametrize(
    "found",
    [
        {"text": TEXT, "entities": [{"start": 16, "end": 24, "type": "LOC"}, [0, 9, "PER"]]},
        # spaCy
        [TEXT, {"entities": [[0, 9, "PER"], [16, 24, "LOC"]]}],
        # Doccano
        {"id": 1, "text": TEXT, "label": [[0, 9, "PER"], [16, 24, "LOC"], [0, 9, "PER"]], "Comments": []},
        {"id": 1, "text": TEXT, "meta": {}, "annotation_approver": None, "labels": [[0, 9, "PER"], [16, 24, "LOC"]]},
        {"id": 1, "text": TEXT, "data": "a column of the user", "label": [[0, 9, "PER"], [16, 24, "LOC"]]},
        {
            "text": TEXT,
            "entities": [
                {"id": 4, "label": "PER", "start_offset": 0, "end_offset": 9},
                {"id": 5, "label": "LOC", "start_offset": 16, "end_offset": 24},
            ],
            "relations": [{"id": 1, "from_id": 4, "to_id": 5, "type": "in"}],
        },
        # Prodigy
        {"text": TEXT, "tokens": [], "spans": [{"start": 0, "end": 9, "label": "PER"}, [16, 24, "LOC"]]},
        {
            "text": TEXT,
            "tokens": [{"text": TEXT, "start": 0, "end": 25, "id": 0, "ws": False}],
            "spans": [
                {"start": 0, "end": 9, "token_start": 0, "token_end": 2, "label": "PER"},
                {"start": 16, "end": 24, "label": "LOC"},
            ],
            "answer": "accept",
        },
        # Label Studio
        task([region(0, 9, "Ann-Marie"), region(16, 24, "New York", "LOC"), {"type": "choices", "value": {}}]),
        {"data": {"note": TEXT}, "completions": [
            {"result": [region(0, 9, "Ann-Marie"), region(16, 24, "New York", "LOC")]}
        ]},
        {"id": 7, "text": TEXT, "annotator": 1, "annotation_id": 2, "lead_time": 1.5,
         "ner": [region(0, 9, "Ann-Marie")["value"], region(16, 24, "New York", "LOC")["value"]]},
    ],
)  # fmt: skip
def test_all_tools_give_the_same_sentence(found):
    first, second = read(json.dumps(found) + "\n\n" + json.dumps(found) + "\n")
    assert first.words == ("Ann-Marie", "is", "in", "New", "York", ".")
    assert first.labels == second.labels == LABELS
    assert (first.number, first.line, second.number, second.line) == (1, 1, 2, 3)
    # A list, in which an object has several lines.
    first, second = read(json.dumps([found, found], indent=2))
    assert first.labels == second.labels == LABELS
    assert (first.number, first.line, second.number) == (1, 2, 2)
    assert second.line == 2 + len(json.dumps(found, indent=2).split("\n"))


def test_an_object_with_a_list_of_annotations_has_its_sentences():
    annotated = [TEXT, {"entities": [[0, 9, "PER"], [16, 24, "LOC"]]}]
    first, second = read(json.dumps({"classes": ["PER", "LOC"], "annotations": [annotated, None, annotated]}))
    assert first.labels == second.labels == LABELS


def test_the_fields_of_the_library_datasets_are_words_and_labels():
    for label_name in ("ner_tags", "tags", "labels"):
        (sentence,) = read({"id": "0", "tokens": ["Rome"], label_name: ["B-LOC"]})
        assert (sentence.words, sentence.labels) == (("Rome",), ("B-LOC",))


def test_words_may_have_labels_and_texts_are_divided_at_entities():
    counts = Counts()
    first, second = read(
        '{"words": ["Rome"], "labels": ["B-LOC"]}\n'
        '{"text": "underworld", "entities": [{"start": 5, "end": 10, "label": "X"}]}\n',
        counts=counts,
    )
    assert (first.words, first.labels) == (("Rome",), ("B-LOC",))
    assert (second.words, second.labels) == (("under", "world"), ("O", "B-X"))
    note = "1 sentence is divided inside a word, where an entity begins or ends (first: sentence 2, line 2)"
    assert counts.notes() == (note,)
    (characters,) = read({"text": "在 北京", "entities": [[2, 4, "LOC"]]}, "characters")
    assert (characters.words, characters.labels) == (("在", "北", "京"), ("O", "B-LOC", "I-LOC"))
    (space,) = read({"text": "Ann is", "spans": [[0, 4, "PER"]]})
    assert space.labels == ("B-PER", "O")


def test_texts_without_entities_have_labels_if_they_were_annotated():
    for found in (
        {"text": "a b", "label": []},
        {"text": "a b", "answer": "accept"},
        {"text": "a b", "annotation_id": 3},
        {"text": "a b", "label": "news", "entities": []},
        task([], text="a b"),
    ):
        assert read(found)[0].labels == ("O", "O")
    assert read({"text": "a b"})[0].labels is None
    assert read({"text": "a b", "entities": None})[0].labels is None


@pytest.mark.parametrize("beside", [{"entities": []}, {"labels": ["news"]}, {"labels": "news"}, {"spans": None}])
def test_a_list_without_entities_hides_no_list_with_some(beside):
    assert read({"text": "a b", "label": [[0, 1, "X"]]} | beside)[0].labels == ("B-X", "O")


def test_positions_are_code_points_unless_the_text_of_an_entity_shows_utf16():
    text = "\U0001f600 Ann \U0001f600 Bo"
    (points,) = read({"text": text, "label": [[2, 5, "PER"], [8, 10, "PER"]]})
    units = [region(3, 6, "Ann"), region(10, 12, "Bo")]
    (utf16,) = read(task(units, text=text))
    assert points.labels == utf16.labels == ("O", "B-PER", "O", "B-PER")
    # All entities of an object are in one unit.
    with pytest.raises(DataError, match=r"the characters 10 to 12 are '', |expected 0 <= start < end <= 10"):
        read(task([region(2, 5, "Ann"), region(10, 12, "Bo")], text=text))
    (lines,) = read(task([region(0, 7, "Ann\\nBo")], text="Ann\n Bo is"))
    assert lines.labels == ("B-PER", "I-PER", "O")


def test_positions_of_label_studio_are_utf16_unless_the_texts_of_entities_show_code_points():
    text, found = "\U0001f600 a Ann b", region(5, 8, "Ann")
    without = {key: value for key, value in found["value"].items() if key != "text"}
    (short,) = read({"text": text, "ner": [without]})
    (whole,) = read(task([found | {"value": without}], text=text))
    assert short.labels == whole.labels == ("O", "O", "B-PER", "O")
    (points,) = read(task([region(4, 7, "Ann")], text=text))
    assert points.labels == ("O", "O", "B-PER", "O")
    with pytest.raises(DataError, match="expected 0 <= start < end <= 9, the length of the text, got -1 and 7"):
        read(task([found | {"value": without | {"start": 1}}], text=text))


def test_label_studio_has_the_text_under_the_key_that_its_entities_fit():
    entity = region(0, 9, "Ann-Marie")
    wrong = {"title": "A letter", "created_at": "2024-01-01", "lead_time": 3}
    first, last = ({"body": text, **wrong, "annotation_id": 1} for text in ("So it is.", "All of it."))
    objects = [first, {"body": TEXT, "label": [entity["value"]], **wrong}, last]
    expected = ("B-PER", "O", "O", "O", "O", "O")
    found = read(objects)
    assert [one.labels for one in found] == [("O",) * 4, expected, ("O",) * 4]
    tasks = [task([], text="") | {"data": first}, task([entity]) | {"data": {**wrong, "body": TEXT}}]
    assert [one.labels for one in read(tasks)] == [("O",) * 4, expected]
    for unclear in ({**wrong, "body": TEXT, "copy": TEXT}, {**wrong, "body": "Ann"}):
        for value in (unclear | {"label": [entity["value"]]}, task([entity]) | {"data": unclear}):
            with pytest.raises(DataError, match=r"got title, .*; rename the key of the text to text"):
                read(value)


def test_positions_may_be_written_as_floats():
    """As pandas writes a column of whole numbers in which some are missing."""
    assert read({"text": TEXT, "entities": [[0.0, 9.0, "PER"], [16.0, 24, "LOC"]]})[0].labels == LABELS
    assert read({"text": TEXT, "spans": [{"start": 0.0, "end": 9.0, "label": "PER"}]})[0].labels[0] == "B-PER"
    with pytest.raises(DataError, match=r'expected \{"start": 0, .*got \[0.5, 9.0'):
        read({"text": TEXT, "entities": [[0.5, 9.0, "PER"]]})


def test_what_was_not_annotated_is_skipped_and_counted():
    counts = Counts()
    found = [
        {"text": "a", "answer": "reject", "spans": [[0, 9, "X"]]},
        {"text": "a", "answer": "ignore"},
        {"text": " ", "label": []},
        task({"was_cancelled": True, "result": []}),
        task(),
        {"text": "b", "label": []},
    ]
    assert [one.number for one in read(found, counts=counts)] == [6]
    assert counts.notes() == (
        '1 sentence is answered with "reject" and skipped (first: sentence 1, line 1)',
        '1 sentence is answered with "ignore" and skipped (first: sentence 2, line 1)',
        "1 sentence is blank and skipped (first: sentence 3, line 1)",
        "2 sentences are without a finished annotation and skipped (first: sentence 4, line 1)",
    )


def test_of_several_annotations_the_ground_truth_or_the_first_is_read():
    one, other = [region(0, 9, "Ann-Marie"), region(16, 24, "New York", "LOC")], [region(16, 24, "New York", "LOC")]
    cancelled, truth = {"was_cancelled": True, "result": other}, {"ground_truth": True, "result": one}
    counts = Counts()
    for found in (task(cancelled, one), task(one, one[::-1]), task(other, truth)):
        assert read(found, counts=counts)[0].labels == LABELS
    assert counts.notes() == ()
    assert read(task(one, other), counts=counts)[0].labels == LABELS
    what = "annotated in several ways without a ground truth and read as in the first annotation"
    assert counts.notes() == (f"1 sentence is {what} (first: sentence 1, line 1)",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nope\n", r"line 1: not JSON: Expecting value at character 1"),
        ('[{"text": "a"},\n {"text" "b"}]', r"line 2: not JSON: Expecting ':' delimiter at character 10"),
        ("3", r"line 1 \(sentence 1\): expected an object, got int"),
        ('[{"text": "a"},\n1]', r"line 2 \(sentence 2\): expected an object, got int"),
        ({"tokens": [{"text": "a"}]}, "expected a string as text, or a list as words, got tokens"),
        ({"tokens": ["a", "b"], "ner_tags": [0, 1]}, "expected the names of labels as ner_tags, got their numbers"),
        ({"text": "a", "entities": {}}, "entities must be a list, got dict"),
        ({"text": "a", "label": "X"}, "label must be a list, got str"),
        ({"text": "a", "entities": [[0, 2, "X"]]}, "expected 0 <= start < end <= 1, the length of the text, got 0 and"),
        ({"text": "ab", "label": [[1, 1, "X"]]}, "expected 0 <= start < end <= 2, the length of the text, got 1 and 1"),
        ({"text": "ab", "label": [[-1, 1, "X"]]}, "expected 0 <= start < end <= 2, the length of the text, got -1"),
        (
            {"text": "a", "spans": [[0, 1, "X"]], "label": [[0, 1, "Y"]]},
            "expected one list of entities, got spans and label; keep one of them",
        ),
        ({"text": "a", "entities": [[0, 1]]}, r'expected \{"start": 0, "end": 5, "type": "PER"\}, got \[0, 1\]'),
        ({"text": "a", "label": [{"start_offset": 0, "end_offset": 1, "label": 3}]}, 'expected {"start": 0'),
        ({"text": "a", "label": [{"start": "0", "end": 1, "label": "X"}]}, 'expected {"start": 0'),
        ({"text": "a b", "entities": [[1, 2, "X"]]}, "expected words from 1 to 2, the entity X, got nothing to see"),
        ({"text": "a \u200b b", "entities": [[2, 3, "X"]]}, "expected words from 2 to 3, the entity X, got nothing"),
        ({"text": "a b", "entities": [[0, 3, "X"], [2, 3, "Y"]]}, "two entities overlap"),
        ({"text": "Ann", "entities": [{"start": 0, "end": 2, "label": "X", "text": "nn"}]}, "the characters 0 to 2 are "
         "'An', but the entity X has the text 'nn'"),
        ({"words": ["a", "b"], "labels": ["O"]}, "expected a label for each of 2 words, got 1 labels"),
        ({"words": ["a", ""]}, "words must be a list of strings that are not blank"),
        ({"words": ["a", " "]}, "words must be a list of strings that are not blank; item 2 is ' '"),
        ({"words": ["a"], "ner_tags": [None]}, "ner_tags must be a list of strings .*; item 1 is None"),
        ({"words": ["a"], "ner_tags": "O"}, "ner_tags must be a list of strings, got 'O'"),
        ({"tokens": "['Anna', 'is']", "ner_tags": "['O', 'O']"}, r"tokens must be a list of words, got the text"),
        ({"words": ["a\tb"]}, r"expected words without tabs and line breaks, got 'a\\tb'"),
        ({"data": {"one": "a", "two": "b"}, "annotations": []}, "expected a string as data.text, got one, two"),
        ({"data": {"text": "a"}, "annotations": [3]}, "expected annotations as objects, as in Label Studio's export"),
        (task({"result": 3}), "expected a list as result, as in Label Studio's export JSON, got 3"),
        (task([region(0, 3, "Ann", type="hypertextlabels")]), "results of the type labels, .* got hypertextlabels"),
        (task([{"type": "labels", "value": {"start": 0, "end": 3}}]), 'expected {"start": 0'),
        (
            task([region(0, 3, "Ann") | {"value": {"start": 0, "end": 3, "labels": ["A", "B"]}}]),
            "expected one label for the text from 0 to 3, got A, B",
        ),
    ],
)  # fmt: skip
def test_bad_input_is_named_by_file_line_and_sentence(text, message):
    with pytest.raises(DataError, match=message) as error:
        read(text)
    assert str(error.value).startswith("x.json, line ")


def test_words_and_labels_of_json_are_read_without_white_space_around_them():
    (sentence,) = read('{"words": [" Rome", "sleeps "], "labels": ["B-LOC ", "O"]}')
    assert (sentence.words, sentence.labels) == (("Rome", "sleeps"), ("B-LOC", "O"))


@pytest.mark.parametrize(
    "found",
    [
        {"text": "Ann \ud83d lives", "label": [[0, 3, "PER"]]},
        {"words": ["Ann", "\ud83d"], "labels": ["B-PER", "O"]},
        {"words": ["Ann"], "labels": ["B-\ud83d"]},
    ],
)
def test_half_of_a_surrogate_pair_is_named(found):
    with pytest.raises(DataError, match=r"x\.json, line 1 \(sentence 1\): half of a surrogate pair.*ud83d"):
        read(json.dumps(found))


@pytest.mark.parametrize("name", ["spans", "label", "labels", "entities"])
def test_entities_of_a_text_count_more_than_words_without_labels(name):
    words = ["Ann-Marie", "is", "in", "New", "York."]
    (found,) = read({"text": TEXT, "tokens": words, name: [[0, 9, "PER"], [16, 24, "LOC"]]})
    assert found.labels == LABELS
    (found,) = read({"text": TEXT, "tokens": words, name: []})
    assert found.labels == ("O",) * 6
    (found,) = read({"text": TEXT, "tokens": words, name: None})
    assert found.labels is None
    (found,) = read({"text": TEXT, "tokens": words, "ner_tags": ["B-X", *"OOOO"], "spans": [[0, 9, "PER"]]})
    assert (found.words, found.labels[0]) == (tuple(words), "B-X")
