import itertools
import json
import re

import numpy as np
import pytest

from data import DataError
from data.squad import QuestionContexts, read_questions
from jaxnlp.text.question_contexts import AnswerSpan, QuestionProcessor
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary

CONTEXT = "Ann was born in Lima. Lima is in Peru."
SMALL = QuestionContexts(people=12, max_length=64, overlap=8, length_multiple=64, batch_size=4, vocabulary_size=400)


def answer(text="Lima", start=16):
    return {"text": text, "answer_start": start}


def row(**fields):
    return {"id": "1", "context": CONTEXT, "question": "Where?", "answers": [answer()]} | fields


def written(tmp_path, content, name="file.json"):
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1), encoding="utf-8")
    return path


SQUAD = {"data": [{"title": "Ann", "paragraphs": [{"context": CONTEXT, "qas": [row(context=0)]}]}], "version": "v2.0"}


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (SQUAD, "squad.json"),
        ([row()], "list.json"),
        ({"data": [row()]}, "data.json"),
        (json.dumps(row()) + "\n\n", "lines.jsonl"),
        ([row(answers={"text": ["Lima"], "answer_start": [16]})], "datasets.json"),
        ([row(answers={"text": ["Lima"]})], "no_start.json"),
        ([row(answers="Lima")], "text.json"),
        ([{key: value for key, value in row().items() if key != "answers"} | {"answer": ["Lima"]}], "answer.json"),
        ([row(answers=[answer(start=15)])], "wrong_start.json"),
        ([row(answers=[answer(start=16.0)])], "float_start.json"),
        ([row(answers=[answer(start=float("nan"))])], "nan_start.json"),
        ([row(answers=[answer(" Lima ", start=15)])], "blanks.json"),
        ([row(id=None)], "id.json"),
        (row(), "object.json"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value and len(value) < 20 else "",
)
def test_all_formats_give_the_same_question(tmp_path, content, name):
    (question,) = read_questions(written(tmp_path, content, name)).questions
    assert (question.name, question.question, question.context) == ("1", "Where?", CONTEXT)
    assert question.answers == (AnswerSpan(16, 20, "Lima"),)


def test_an_answer_is_where_the_file_says_or_the_nearest_place(tmp_path):
    answers = [answer(start=start) for start in (16, 20, 22, 0, -1, 99)]
    (question,) = read_questions(written(tmp_path, [row(answers=answers)])).questions
    assert [span.start for span in question.answers] == [16, 22, 22, 16, 16, 22]


FAR = "\U0001f600\r\n" * 30 + "Zo\u00eb lives in Lima. Lima is big."
"""A context in which a position in another unit is nearer to another occurrence of the answer."""


@pytest.mark.parametrize("line_end", ["\r\n", "\n"])
@pytest.mark.parametrize(("encoding", "size"), [("utf-32-le", 4), ("utf-16-le", 2), ("utf-8", 1)])
def test_positions_count_characters_code_units_or_bytes_and_a_line_break_of_two_characters_once_or_twice(
    tmp_path, caplog, encoding, size, line_end
):
    place = FAR.index("Lima")
    start = len(FAR[:place].replace("\r\n", line_end).encode(encoding)) // size
    (question,) = read_questions(written(tmp_path, [row(context=FAR, answers=[answer(start=start)])])).questions
    assert question.answers == (AnswerSpan(place, place + 4, "Lima"),)
    assert caplog.text == ""


@pytest.mark.parametrize(("given", "uncertain"), [(16, 0), (20, 1), (-1, 1), (None, 1)])
def test_answers_whose_place_is_not_certain_are_counted(tmp_path, caplog, given, uncertain):
    rows = [row(), row(id="2", answers=[answer(start=given)]), row(id="3", answers=[answer("Peru", start=3)])]
    read_questions(written(tmp_path, [json.loads(json.dumps(one)) for one in rows]))
    assert [record.getMessage().count("1 of 3") for record in caplog.records] == [1] * uncertain


@pytest.mark.parametrize(
    ("context", "text", "start", "certain"),
    [
        ("Annual report by Ann.", "Ann", 17, True),
        ("Annual report.", "Ann", 0, False),
        ("An annual report.", "annua", 3, False),
        ("安娜在罗马。", "罗马", 3, True),
        ("In 1990, 19 people.", "19", 9, True),
        ("Ann, Ann.", "Ann", 0, False),
    ],
)
def test_an_answer_without_a_position_is_no_part_of_a_longer_word(tmp_path, caplog, context, text, start, certain):
    fields = {"id": "1", "question": "Who?", "context": context, "answer": text}
    (question,) = read_questions(written(tmp_path, [fields])).questions
    assert question.answers == (AnswerSpan(start, start + len(text), text),)
    assert ("not certain in 1 of 1 questions" in caplog.text) != certain


@pytest.mark.parametrize(
    "fields",
    [
        {"answer": "Lima", "answer_start": 22},
        {"answer": {"text": "Lima", "start": 22, "answer_start": None}},
        {"answers": ["Lima"], "answer_start": [22]},
        {"answers": {"text": ["Lima"], "start": [22]}},
    ],
)
def test_a_position_may_stand_beside_its_answer(tmp_path, caplog, fields):
    rows = [{key: value for key, value in row().items() if key != "answers"} | fields]
    (question,) = read_questions(written(tmp_path, rows)).questions
    assert question.answers == (AnswerSpan(22, 26, "Lima"),)
    assert caplog.text == ""


def test_no_answer_and_an_unknown_answer_differ(tmp_path):
    rows = [
        row(answers=[]),
        row(id="2", answers=None, is_impossible=True),
        row(id="3", answers={"text": [], "answer_start": []}),
        row(id="4", answers=None, answer="", is_impossible=True),
    ]
    assert [one.answers for one in read_questions(written(tmp_path, rows)).questions] == [()] * 4
    assert read_questions(written(tmp_path, [row(answers=None)])).questions[0].answers is None


def test_questions_without_an_id_are_numbered_and_blank_ones_are_skipped_and_counted(tmp_path, caplog):
    rows = [{key: value for key, value in row(question=text).items() if key != "id"} for text in ("One?", " ", "Two?")]
    found, names = read_questions(written(tmp_path, "".join(json.dumps(one) + "\n" for one in rows)))
    assert names == ["1", "2", "3"]
    assert [(one.name, one.question) for one in found] == [("1", "One?"), ("3", "Two?")]
    assert "skipped: 1 of 3, the first in line 2" in caplog.text


def test_a_blank_question_of_a_file_in_one_line_is_named_by_its_number(tmp_path, caplog):
    paragraph = {"context": CONTEXT, "qas": [row(), row(id="2", question=" ")]}
    read_questions(written(tmp_path, json.dumps({"data": [{"paragraphs": [paragraph]}]})))
    assert "skipped: 1 of 2, the first in question 2" in caplog.text


def test_a_blank_context_is_skipped_although_its_answer_cannot_occur(tmp_path, caplog):
    found, _ = read_questions(written(tmp_path, [row(), row(id="2", context=" ")]))
    assert [one.name for one in found] == ["1"]
    assert "skipped: 1" in caplog.text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([row(), row(answers=[answer("Oslo")])], "line 13: its id '1' is that of line 2"),
        ([row(answers=[answer("Oslo")])], "the answer 'Oslo' does not occur in the context"),
        (
            [row(context="Zoe\u0301 left.", answers=[answer("Zo\u00e9", 0)])],
            "the answer 'Zo\u00e9' does not occur in the context; its accents .* write the file in NFC",
        ),
        ([row(answer="Lima")], "it has answer and answers; remove one"),
        ([row(is_impossible=True)], "is_impossible is true, but it has an answer"),
        ([row(is_impossible="true")], 'expected is_impossible as true or false, got "true"'),
        ([row(answers=[answer(start=16.5)])], "expected an answer as .*16.5"),
        ([row(answers=[3])], "expected an answer as .*got 3"),
        (
            [row(answers=[answer(" ")])],
            "expected an answer as.*write \\[\\] for a question whose context has no answer",
        ),
        ([row(answers={"text": ["Lima"], "answer_start": []})], "a list of 1 numbers as answer_start"),
        ([row(context=None)], "expected context as a text, got null"),
        ([{"context": CONTEXT}], "expected question as a text"),
        ([row(), row(id="2", answers=None)], "expected answers, got none; write \\[\\]"),
        ([row(answers=None), row(id="2")], "it has answers, but the questions before it do not"),
        ([{"paragraphs": []}], 'line 2: expected a question, got paragraphs; .* format is {"data": \\[{"paragraphs"'),
        ({"data": [{"context": CONTEXT, "qas": []}]}, "question 1: expected a question, got qas; SQuAD's format"),
        (json.dumps([row(), row()]), "line 1, question 2: its id '1' is that of line 1"),
        ([row(id="2"), row(id=None)], "line 13: it has no id, and its number '2' is that of line 2"),
        (
            json.dumps(SQUAD) + "\n" + json.dumps({"data": [row(id="2", answers=[answer("Oslo")])]}),
            "question 2: .*'Oslo'",
        ),
        ({"data": [row(), {"paragraphs": 3}]}, "article 2: .*a list of paragraphs"),
        ({"data": [{"paragraphs": [{"context": CONTEXT}]}]}, "article 1, paragraph 1: .*a list of qas"),
        ({"data": [3]}, "question 1: expected a question as a JSON object, got 3"),
        ({"data": []}, "expected questions in SQuAD's format"),
        ("[", "not JSON"),
        ("{", "not JSON"),
        (json.dumps(SQUAD, indent=1)[:-9], "line 2[0-9]: not JSON"),
        ([row(question="Why\ud800")], "question has half of a surrogate pair"),
        ([row(question="")], "all 1 questions are blank"),
    ],
)
def test_other_content_is_refused_with_its_place(tmp_path, content, words):
    path = written(tmp_path, content)
    with pytest.raises(DataError, match=words) as refused:
        read_questions(path)
    assert str(path) in str(refused.value)


def test_questions_whose_answer_does_not_occur_are_counted_and_the_first_three_named(tmp_path):
    rows = [row(id=str(number), answers=[answer(text)]) for number, text in enumerate(("Oslo", "Lima", *"XYZ"))]
    path = written(tmp_path, "".join(json.dumps(one) + "\n" for one in rows))
    with pytest.raises(DataError, match="answers of 4 of 5 questions do not occur") as refused:
        read_questions(path)
    assert re.findall("line (.): the answer '(.*?)'", str(refused.value)) == [("1", "Oslo"), ("3", "X"), ("4", "Y")]


def test_a_corpus_has_windows_with_the_tokens_of_their_answers():
    corpus = SMALL.load(0)
    split = corpus.splits["validation"]
    windows = corpus.processor.windows(split.examples)
    spans = np.concatenate([batch["span"][batch["loss_mask"]] for batch in split.batches])
    tokens = np.concatenate([batch["tokens"][batch["loss_mask"]] for batch in split.batches])
    assert len(spans) == len(windows) == len(split.rows)
    for row_, (index, (first, last)) in enumerate(zip(split.rows, spans, strict=True)):
        window = windows[index]
        question = split.examples[window.question_index]
        found = corpus.processor.vocabulary.decode(tokens[row_, first : last + 1]).replace(" ", "")
        assert (first, last) == window.tokens_of(question.answers)
        assert found in ("", *(span.text.lower().replace(" ", "") for span in question.answers))
    assert 0 < (spans == 0).all(axis=1).sum() < len(spans)
    batches = list(itertools.islice(iter(corpus.train), 3))
    assert {batch["tokens"].shape for batch in batches} == {(4, 64)}
    assert "48 for training, 12 for validation" in corpus.description


def test_the_order_of_training_depends_on_the_seed_and_continues_from_its_state():
    first, second = (iter(SMALL.load(seed).train) for seed in (0, 1))
    assert not np.array_equal(next(first)["tokens"], next(second)["tokens"])
    state = first.get_state()
    expected = next(first)
    again = iter(SMALL.load(0).train)
    again.set_state(state)
    np.testing.assert_array_equal(next(again)["tokens"], expected["tokens"])


def test_own_files_hold_out_a_tenth_of_the_contexts_and_keep_the_vocabulary_of_a_pretrained_model(tmp_path):
    rows = [
        row(id=f"{context}-{number}", context=f"{CONTEXT} {context}")
        for context, number in itertools.product(range(20), range(2))
    ]
    config = QuestionContexts(
        source="files", train=str(written(tmp_path, rows)), batch_size=4, max_length=64, overlap=8
    )
    vocabulary = WordPieceVocabulary.of_pieces([*SPECIAL, "lima", "ann"])
    corpus = config.load(0, vocabulary)
    assert corpus.processor == QuestionProcessor(vocabulary, 64, 8)
    examples = corpus.splits["validation"].examples
    assert len(examples) == 4
    assert len({one.context for one in examples}) == 2
    path = written(tmp_path, [row(answers=None)], "asked.json")
    assert not config.read_file(path, corpus.processor).scored
    given = QuestionContexts(
        source="files",
        train=config.train,
        validation=config.train,
        test=str(path),
        batch_size=4,
        max_length=64,
        overlap=8,
    )
    assert {name: split.scored for name, split in given.load(0).splits.items()} == {"validation": True, "test": False}
    assert given.load(0, corpus.processor).processor == corpus.processor


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"source": "files"}, "--data.train FILE"),
        ({"train": "x.json"}, "data.train"),
        ({"encoding": "cp1252"}, "data.encoding"),
        ({"source": "files", "people": 3}, "data.people"),
        ({"max_length": 64, "overlap": 29}, "at most 28"),
        ({"max_length": 64, "overlap": 8, "people": 1}, "--data.batch-size 32 exceeds"),
        ({"vocabulary_size": 10, "people": 3}, "--data.vocabulary-size 10"),
    ],
)
def test_options_that_do_not_fit_are_refused(fields, words):
    with pytest.raises(ValueError, match=words):
        QuestionContexts(**fields).load(0)


def test_a_run_that_starts_from_an_earlier_one_does_not_score_what_that_has_learned():
    earlier = QuestionContexts(source="files", train="a.json")
    SMALL.check_after(earlier)
    with pytest.raises(DataError, match=r"the earlier run was trained on a\.json, which has sentences of the val"):
        QuestionContexts(source="files", train="b.json", validation="a.json").check_after(earlier)
