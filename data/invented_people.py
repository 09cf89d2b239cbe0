"""Invented people for the birth-place task, in the formats of the real data, for use without that data."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import tyro

from data import DataError
from jaxnlp.cli.messages import program_name
from jaxnlp.cli.options import read_options
from jaxnlp.saving.atomic_files import new_folder, refuse_contents

Item = TypeVar("Item")
Facts = dict[str, str]

# Names and places combine one first part and one second part. No entry of a list is a prefix of another. So no
# surname, place or full name is a prefix of another.
FIRST_NAMES = (
    ("Ald", "Bren", "Dar", "Fen", "Gav", "Hil", "Jor", "Kel", "Lud", "Mar", "Nol", "Rud", "Sel", "Tam", "Vel", "Wil"),
    ("ana", "ek", "en", "eth", "ia", "ik", "ina", "io", "on", "ora", "us", "wyn"),
)
SURNAMES = (
    ("Arn", "Bal", "Bran", "Dov", "Fal", "Grim", "Hal", "Kir", "Lom", "Mor", "Nav", "Os", "Rav", "Sorn", "Tal", "Ven"),
    ("ano", "dahl", "etti", "kov", "lund", "man", "nell", "ovic", "rup", "sen", "vin", "well"),
)
PLACES = (
    ("Bor", "Brack", "Drun", "Glim", "Gren", "Hark", "Kor", "Lus", "Mul", "Ol", "Rus", "Sil", "Tarn", "Vos", "Wen"),
    ("burg", "by", "field", "haven", "holm", "mouth", "port", "stad", "ton"),
)
PLACE_COUNT = 25

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
OCCUPATIONS = (
    "an actor",
    "an architect",
    "an astronomer",
    "a baker",
    "a botanist",
    "a composer",
    "a diplomat",
    "an engineer",
    "a farmer",
    "a historian",
    "a lawyer",
    "a painter",
    "a poet",
    "a sailor",
    "a shipbuilder",
    "a teacher",
)

# All people are dead, and moved to, worked in and died in the other place, so that sentences do not contradict each
# other. A blank comes before the full stop, as in the real text.
BIRTH_PHRASINGS = (
    "{name} (born {birth_date} in {birth_place}) was {occupation} .",
    "{name} (born {birth_year}, {birth_place}) was {occupation} in {other_place} .",
    "{name} ({birth_date} {birth_place} - {death_year} {other_place}) was {occupation} .",
    "{name} was {occupation} born in {birth_place} in {birth_year} .",
    "{name} was {occupation} who was born in {birth_place} and lived in {other_place} .",
    "{name}, {occupation}, was born in {birth_place} and died in {other_place} .",
    "{name} was born in {birth_place} . {surname} worked in {other_place} until {death_year} .",
    "{surname} was born at {birth_place} on {birth_date} .",
    "{surname} was born in {birth_place} and moved to {other_place} in {move_year} .",
    "Born in {birth_place}, {surname} worked as {occupation} in {other_place} .",
    "Born in {birth_place} in {birth_year}, {surname} became {occupation} .",
    "Known in {other_place} as {occupation}, {surname} was born in {birth_place} in {birth_year} .",
)
CAREER_PHRASINGS = (
    "{name} was {occupation} who died in {other_place} in {death_year} .",
    "{surname} worked as {occupation} in {other_place} until {death_year} .",
    "{surname} moved to {other_place} in {move_year} and became {occupation} .",
    "After {move_year}, {surname} lived in {other_place} as {occupation} .",
)
BIRTH_DOCUMENTS = 3
"""Number of documents about a person with the birth place, each in another phrasing. A model memorises a fact in only
one phrasing, but cannot answer a question about it (Allen-Zhu and Li 2023, Physics of Language Models 3.1). One more
document has only the other place."""

NAMESAKES = 4
"""Mean number of people with the same first name, and with the same surname."""


@dataclasses.dataclass(frozen=True)
class InventedPeople:
    """A corpus about invented people, and questions about them.

    Attributes:
      documents: `Name. Text`, in random order; at most 112 characters each, since span corruption truncates documents
        to 112 characters if sequences have 128.
      train: (question, birth place) pairs, such as ("Where was Marina Dovsen born?", "Harkstad").
      dev: the same for other people.
      test: questions about people whose birth place is only in the documents.
    """

    documents: tuple[str, ...]
    train: tuple[tuple[str, str], ...]
    dev: tuple[tuple[str, str], ...]
    test: tuple[str, ...]


def invent(seed: int, *, train: int = 300, dev: int = 100, test: int = 50) -> InventedPeople:
    """People, their birth places and documents; a seed gives the same people on all machines and versions.

    The place of rank r (from 0) has a share proportional to 1 / (r + 3): the most frequent place is right for one
    person in seven.

    Args:
      seed: at least 0.
      train: number of people with training questions.
      dev: number of people with held-out questions.
      test: number of people with held-out questions without answers.

    Raises: DataError for a seed below 0, a size below 1, or more people than there are names.
    """
    if seed < 0:
        raise DataError(f"the seed of invented people must be at least 0, got {seed}")
    for split, size in (("train", train), ("dev", dev), ("test", test)):
        if size < 1:
            raise DataError(f"{split} must have at least 1 person, got {size}")
    dice = _Dice(seed)
    names = _names(train + dev + test, dice)
    places = dice.shuffled(combined(PLACES))[:PLACE_COUNT]
    urn = [place for rank, place in enumerate(places) for _ in range(round(2520 / (rank + 3)))]
    people = [_facts(first_name, surname, urn, dice) for first_name, surname in names]
    documents = [document for person in people for document in _documents(person, dice)]
    answered = tuple((f"Where was {person['name']} born?", person["birth_place"]) for person in people)
    return InventedPeople(
        documents=tuple(dice.shuffled(documents)),
        train=answered[:train],
        dev=answered[train : train + dev],
        test=tuple(question for question, _ in answered[train + dev :]),
    )


def write(people: InventedPeople, folder: Path) -> None:
    """Writes wiki.txt, birth_places_train.tsv, birth_dev.tsv and birth_test_inputs.tsv in the formats of the real data,
    all or nothing.

    Raises: FileExistsError unless the folder is new or empty.
    """
    files = {
        "wiki.txt": people.documents,
        "birth_places_train.tsv": ["\t".join(pair) for pair in people.train],
        "birth_dev.tsv": ["\t".join(pair) for pair in people.dev],
        "birth_test_inputs.tsv": people.test,
    }
    refuse_contents(folder)
    with new_folder(folder) as partial:
        for name, lines in files.items():
            (partial / name).write_bytes("".join(f"{line}\n" for line in lines).encode())


class _Dice:
    """Random choices from PCG64's raw stream, which all versions of NumPy keep, unlike the methods of Generator."""

    def __init__(self, seed: int):
        self._bits = np.random.PCG64(np.random.SeedSequence(seed))

    def below(self, limit: int) -> int:
        """A number below the limit; the remainder of 2^64 values has a bias of at most limit / 2^64."""
        return int(self._bits.random_raw()) % limit

    def pick(self, items: Sequence[Item]) -> Item:
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        """The items in random order, by the Fisher-Yates shuffle."""
        order = list(items)
        for last in range(len(order) - 1, 0, -1):
            other = self.below(last + 1)
            order[last], order[other] = order[other], order[last]
        return order


def combined(syllables: tuple[tuple[str, ...], tuple[str, ...]]) -> list[str]:
    """All names of a first and a second part."""
    beginnings, endings = syllables
    return [beginning + ending for beginning in beginnings for ending in endings]


def _names(count: int, dice: _Dice) -> list[tuple[str, str]]:
    """Distinct pairs of first name and surname; about NAMESAKES people share each name.

    Person i has first name i mod N and surname i mod (N + 1). The moduli are coprime, so no pair repeats before all N
    (N + 1) are used.
    """
    first_names, surnames = dice.shuffled(combined(FIRST_NAMES)), dice.shuffled(combined(SURNAMES))
    most = min(len(first_names), len(surnames) - 1)
    if count > most * (most + 1):
        raise DataError(f"cannot name {count:,} people: the syllables make {most * (most + 1):,} distinct names")
    enough = math.isqrt(count - 1) + 1
    used = min(most, max(enough, count // NAMESAKES))
    return dice.shuffled([(first_names[index % used], surnames[index % (used + 1)]) for index in range(count)])


def _facts(first_name: str, surname: str, urn: Sequence[str], dice: _Dice) -> Facts:
    birth_place = other_place = dice.pick(urn)
    while other_place == birth_place:
        other_place = dice.pick(urn)
    birth_year = 1800 + dice.below(120)
    move_year = birth_year + 18 + dice.below(20)
    return {
        "name": f"{first_name} {surname}",
        "surname": surname,
        "birth_place": birth_place,
        "other_place": other_place,
        "occupation": dice.pick(OCCUPATIONS),
        "birth_date": f"{1 + dice.below(28)} {dice.pick(MONTHS)} {birth_year}",
        "birth_year": str(birth_year),
        "move_year": str(move_year),
        "death_year": str(move_year + 5 + dice.below(40)),
    }


def _documents(facts: Facts, dice: _Dice) -> list[str]:
    phrasings = [*dice.shuffled(BIRTH_PHRASINGS)[:BIRTH_DOCUMENTS], dice.pick(CAREER_PHRASINGS)]
    return [f"{facts['name']}. {phrasing.format(**facts)}" for phrasing in phrasings]


@dataclasses.dataclass(frozen=True)
class Options:
    """Writes invented people to a folder: wiki.txt and the questions about them."""

    folder: tyro.conf.Positional[Path]
    """Folder for the files; created if it does not exist."""
    seed: int = 0
    """Seed of all names and texts."""
    train: int = 300
    """Number of people with training questions."""
    dev: int = 100
    """Number of people with held-out questions."""
    test: int = 50
    """Number of people with held-out questions without answers."""


def main(arguments: Sequence[str]) -> int:
    """Writes the files. Returns: the exit status. Raises: ValueError, OSError."""
    program = f"{program_name()} invent-people"
    (options,) = read_options([Options], arguments, program=program, description=Options.__doc__ or "")
    people = invent(options.seed, train=options.train, dev=options.dev, test=options.test)
    write(people, options.folder)
    total = options.train + options.dev + options.test
    print(f"{options.folder}: {len(people.documents):,} documents about {total:,} people, such as")
    for document in people.documents[:5]:
        print(f"  {document}")
    return 0
