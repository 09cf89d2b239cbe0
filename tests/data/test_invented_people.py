import hashlib
import itertools
import os
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from data import DataError, invented_people
from data.invented_people import BIRTH_PHRASINGS, CAREER_PHRASINGS, InventedPeople, invent, main, write
from jaxnlp.__main__ import main as jaxnlp_main

PEOPLE = invent(0)
POSSIBLE_NAMES = 191 * 192

PLACES = [beginning + ending for beginning in invented_people.PLACES[0] for ending in invented_people.PLACES[1]]
ANY_PLACE = re.compile(rf"\b({'|'.join(PLACES)})\b")
LINES = {
    "wiki.txt": r"[^\t\n]+?\. [^\t\n]+ \.\n",
    "birth_places_train.tsv": r"Where was [^\t\n]+ born\?\t[^\t\n]+\n",
    "birth_dev.tsv": r"Where was [^\t\n]+ born\?\t[^\t\n]+\n",
    "birth_test_inputs.tsv": r"Where was [^\t\n]+ born\?\n",
}


def name_in(question):
    return re.fullmatch(r"Where was (\w+ \w+) born\?", question)[1]


def questions(people):
    return [question for question, _ in people.train + people.dev] + list(people.test)


def documents_by_name(people):
    found = defaultdict(list)
    for document in people.documents:
        name, text = document.split(". ", maxsplit=1)
        found[name].append(text)
    return found


def answers(people):
    return {name_in(question): place for question, place in people.train + people.dev}


def all_text(people):
    pairs = ["\t".join(pair) for pair in people.train + people.dev]
    return "\n".join([*people.documents, *pairs, *people.test])


def read_back(folder):
    wiki, train, dev, test = ((folder / name).read_bytes().decode().split("\n") for name in LINES)
    assert wiki.pop() == train.pop() == dev.pop() == test.pop() == "", "the last line is ended"
    pairs = [tuple(tuple(line.split("\t")) for line in lines) for lines in (train, dev)]
    return InventedPeople(tuple(wiki), *pairs, tuple(test))


def test_default_corpus_is_the_same_everywhere():
    digest = hashlib.sha256(all_text(PEOPLE).encode()).hexdigest()
    assert digest == "53734906f9ae1fa3b8b8e98190cc5ffbb438bf16f7b2af3f6d515b9059a3db66"


def test_seed_decides_everything():
    again, other = invent(0), invent(1)
    assert again == PEOPLE
    assert not set(other.documents) & set(PEOPLE.documents)
    assert set(answers(other).values()) != set(answers(PEOPLE).values())


@pytest.mark.parametrize(("train", "dev", "test"), [(1, 1, 1), (2, 1, 5), (40, 3, 2)])
def test_each_split_has_as_many_people_as_asked(train, dev, test):
    people = invent(0, train=train, dev=dev, test=test)
    assert (len(people.train), len(people.dev), len(people.test)) == (train, dev, test)
    assert len(set(questions(people))) == train + dev + test
    assert {name_in(question) for question in questions(people)} == documents_by_name(people).keys()


@pytest.mark.thorough
def test_all_names_there_are_can_be_used_and_none_begins_another():
    people = invent(0, train=POSSIBLE_NAMES - 2, dev=1, test=1)
    names = sorted(name_in(question) for question in questions(people))
    assert len(set(names)) == POSSIBLE_NAMES
    # Whatever begins with a name comes right after it in order.
    assert not any(later.startswith(name) for name, later in itertools.pairwise(names))


@pytest.mark.parametrize("seed", range(3))
def test_neither_first_name_nor_surname_identifies_the_person(seed):
    names = [name_in(question).split() for question in questions(invent(seed))]
    for part in zip(*names, strict=True):
        assert min(Counter(part).values()) >= 3


def test_no_place_begins_another_or_is_in_a_name():
    assert not any(later.startswith(place) for place, later in itertools.pairwise(sorted(PLACES)))
    assert not any(ANY_PLACE.search(name_in(question)) for question in questions(PEOPLE))
    syllables = {beginning + ending for beginning, ending in itertools.product(*invented_people.SURNAMES)}
    assert not syllables & set(PLACES)


@pytest.mark.parametrize("seed", range(3))
def test_three_documents_of_each_person_name_the_birth_place_and_one_does_not(seed):
    people = invent(seed)
    documents = documents_by_name(people)
    for name, place in answers(people).items():
        assert sum(place in ANY_PLACE.findall(text) for text in documents[name]) == 3
        assert len(set(documents[name])) == 4


@pytest.mark.parametrize("seed", range(3))
def test_everyone_has_one_other_place_that_is_not_the_answer(seed):
    people = invent(seed)
    documents = documents_by_name(people)
    for name, place in answers(people).items():
        others = {found for text in documents[name] for found in ANY_PLACE.findall(text)} - {place}
        assert len(others) == 1
    for question in people.test:
        assert len({found for text in documents[name_in(question)] for found in ANY_PLACE.findall(text)}) == 2


def test_the_most_frequent_other_places_are_the_most_frequent_birth_places():
    people = invent(0, train=10_000)
    birth_places = Counter(answers(people).values())
    documents = documents_by_name(people)
    others = Counter(
        next(found for text in documents[name] for found in ANY_PLACE.findall(text) if found != place)
        for name, place in answers(people).items()
    )
    assert [place for place, _ in others.most_common(3)] == [place for place, _ in birth_places.most_common(3)]


def test_years_in_a_document_run_forward():
    pairs = [re.findall(r"\b1\d{3}\b|\b20\d{2}\b", document) for document in PEOPLE.documents]
    assert any(len(years) == 2 for years in pairs)
    assert all(years == sorted(years) for years in pairs)
    assert all(1800 <= int(year) <= 2000 for years in pairs for year in years)


def longest(words):
    return max(words, key=len)


@pytest.mark.parametrize("phrasing", BIRTH_PHRASINGS + CAREER_PHRASINGS)
def test_longest_document_of_each_phrasing_fits_what_corruption_keeps(phrasing):
    first_name, surname, place = (
        "".join(map(longest, syllables))
        for syllables in (invented_people.FIRST_NAMES, invented_people.SURNAMES, invented_people.PLACES)
    )
    name = f"{first_name} {surname}"
    document = f"{name}. " + phrasing.format(
        name=name,
        surname=surname,
        birth_place=place,
        other_place=place,
        occupation=longest(invented_people.OCCUPATIONS),
        birth_date=f"28 {longest(invented_people.MONTHS)} 1800",
        birth_year=1800,
        move_year=1800,
        death_year=1800,
    )
    assert len(document) <= int(128 * 7 / 8)


def as_pattern(phrasing):
    """A regular expression for the phrasing's texts, whoever they are about."""
    kinds = {"name": r"\w+ \w+", "occupation": r"an? \w+", "birth_date": r"\d+ \w+ \d+"}
    return re.sub(r"\\\{(\w+)\\\}", lambda match: kinds.get(match[1], r"\w+"), re.escape(phrasing))


def test_documents_come_in_every_phrasing_and_random_order():
    names = [document.split(". ", maxsplit=1)[0] for document in PEOPLE.documents]
    assert sum(one == next_ for one, next_ in itertools.pairwise(names)) < 20
    texts = [text for about in documents_by_name(PEOPLE).values() for text in about]
    patterns = [as_pattern(phrasing) for phrasing in BIRTH_PHRASINGS + CAREER_PHRASINGS]
    used = [[bool(re.fullmatch(pattern, text)) for pattern in patterns] for text in texts]
    assert {sum(row) for row in used} == {1}
    assert min(map(sum, zip(*used, strict=True))) > 70


def test_alphabet_is_small_and_printable():
    alphabet = set(all_text(PEOPLE)) - {"\t", "\n"}
    assert len(alphabet) < 60
    assert all(character.isascii() and character.isprintable() for character in alphabet)


def test_places_are_zipf_like():
    counts = Counter(answers(invent(0, train=20_000)).values())
    weights = [1 / (rank + 3) for rank in range(25)]
    expected = [20_100 * weight / sum(weights) for weight in weights]
    observed = [count for _, count in counts.most_common()]
    assert len(observed) == 25
    for seen, wanted in zip(observed, expected, strict=True):
        assert abs(seen - wanted) < 0.2 * wanted


@pytest.mark.parametrize("seed", range(20))
def test_always_the_most_frequent_place_is_right_for_few(seed):
    people = invent(seed)
    place = Counter(place for _, place in people.train).most_common(1)[0][0]
    assert 0.05 <= sum(answer == place for _, answer in people.dev) / len(people.dev) <= 0.25


def test_files_read_back_equal(tmp_path):
    write(PEOPLE, tmp_path / "new" / "folder")
    assert read_back(tmp_path / "new" / "folder") == PEOPLE


@pytest.mark.parametrize("name", LINES)
def test_lines_have_the_real_format(tmp_path, name):
    write(PEOPLE, tmp_path)
    assert re.fullmatch(f"({LINES[name]})+", (tmp_path / name).read_bytes().decode())


@pytest.mark.realdata
@pytest.mark.parametrize("name", LINES)
def test_the_real_format_is_that_of_the_real_data(name):
    raw = Path(os.environ["JAXNLP_DATA"], "cs224n_a5_names", name).read_bytes().decode()
    matched = re.findall(f"^{LINES[name]}", raw, flags=re.MULTILINE)
    assert len(matched) >= 0.99 * raw.count("\n"), "a few real documents end otherwise"
    assert raw.endswith("\n")


def test_files_of_the_same_names_are_not_replaced(tmp_path):
    (tmp_path / "wiki.txt").write_text("my own")
    with pytest.raises(FileExistsError, match="exists and is not empty; give another directory"):
        write(PEOPLE, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["wiki.txt"]
    assert (tmp_path / "wiki.txt").read_text() == "my own"


def test_interrupted_writing_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write(PEOPLE, tmp_path / "people")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": -1}, "the seed of invented people must be at least 0, got -1"),
        ({"train": 0}, "train must have at least 1 person, got 0"),
        ({"dev": -2}, "dev must have at least 1 person, got -2"),
        ({"test": 0}, "test must have at least 1 person, got 0"),
        ({"train": POSSIBLE_NAMES, "dev": 1, "test": 1}, "cannot name 36,674 people: .* make 36,672 distinct names"),
    ],
)
def test_what_cannot_be_invented_is_refused_with_its_values(arguments, message):
    with pytest.raises(DataError, match=message):
        invent(**({"seed": 0} | arguments))


def test_command_writes_the_corpus_of_its_options_and_shows_some(tmp_path, capsys):
    assert main([str(tmp_path), "--seed", "5", "--train", "4", "--dev", "3", "--test", "2"]) == 0
    assert read_back(tmp_path) == (people := invent(5, train=4, dev=3, test=2))
    shown = capsys.readouterr().out
    assert f"{tmp_path}: 36 documents about 9 people" in shown
    assert people.documents[0] in shown


@pytest.mark.parametrize(
    ("options", "reason"),
    [(["--train", "0"], "train must have"), ([], "exists and is not empty"), (["--sed", "1"], "did you mean --seed")],
)
def test_command_that_fails_says_why_in_one_line(tmp_path, capsys, options, reason):
    (tmp_path / "taken").write_text("no folder")
    assert jaxnlp_main(["invent-people", str(tmp_path / "taken"), *options]) == 2
    assert re.fullmatch(f"error: .*{reason}.*\n", capsys.readouterr().err)
