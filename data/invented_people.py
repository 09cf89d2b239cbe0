"""Invented people for the birth-place task, in the formats of the real data, so that it can be run anywhere."""

import dataclasses
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import tyro

from data import DataError
from jaxnlp.files import write_file

Item = TypeVar("Item")
Facts = dict[str, str]

# Names and places are one beginning and one ending of these. Within a list no entry begins another, hence no surname
# begins another and no place does; after a first name comes a space, hence no full name begins another either.
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

# Everyone is dead and the other place is where they moved, worked and died, so that no two sentences contradict each
# other. The full stop stands apart, as in the real text.
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
"""Documents about a person that name the birth place, each in another phrasing: a fact that is only ever told in one
way is memorised but not recalled by a question (Allen-Zhu and Li 2023, Physics of Language Models 3.1). One more
document names only the other place."""

NAMESAKES = 4
"""People who share a first name, and people who share a surname, on average."""


@dataclasses.dataclass(frozen=True)
class InventedPeople:
    """A corpus about people who never lived, and questions about them.

    Attributes:
      documents: `Name. Text`, in random order; at most 112 characters each, all that span corruption keeps of a
        document in a block of 128.
      train: (question, birth place) pairs, such as ("Where was Marina Dovsen born?", "Harkstad").
      dev: the same for other people.
      test: questions about people of whom only the documents tell the birth place.
    """

    documents: tuple[str, ...]
    train: tuple[tuple[str, str], ...]
    dev: tuple[tuple[str, str], ...]
    test: tuple[str, ...]


def invent(seed: int, *, train: int = 300, dev: int = 100, test: int = 50) -> InventedPeople:
    """People, their birth places and what is written about them: the same for a seed everywhere and always.

    The place of rank r (from 0) has a share of about 1 / (r + 3): who always answers with the most frequent one is
    right for one person in seven.

    Args:
      seed: decides everything, at least 0.
      train: people whose questions are for training.
      dev: people whose questions are held out.
      test: people whose questions are held out and come without their answers.

    Raises:
      DataError: for a seed below 0, a size below 1, or more people than there are names; the message gives the values.
    """
    if seed < 0:
        raise DataError(f"the seed of invented people must be at least 0, got {seed}")
    for split, size in (("train", train), ("dev", dev), ("test", test)):
        if size < 1:
            raise DataError(f"{split} must have at least 1 person, got {size}")
    dice = _Dice(seed)
    names = _names(train + dev + test, dice)
    places = dice.shuffled(_combined(PLACES))[:PLACE_COUNT]
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
    """Writes wiki.txt, birth_places_train.tsv, birth_dev.tsv and birth_test_inputs.tsv as the real ones are written.

    Each file appears whole; older ones of the same names are replaced.
    """
    files = {
        "wiki.txt": people.documents,
        "birth_places_train.tsv": ["\t".join(pair) for pair in people.train],
        "birth_dev.tsv": ["\t".join(pair) for pair in people.dev],
        "birth_test_inputs.tsv": people.test,
    }
    for name, lines in files.items():
        write_file(folder / name, "".join(f"{line}\n" for line in lines).encode())


class _Dice:
    """Random choices out of PCG64's raw stream: NumPy promises to keep it, but not what Generator makes of it."""

    def __init__(self, seed: int):
        self._bits = np.random.PCG64(np.random.SeedSequence(seed))

    def below(self, limit: int) -> int:
        """Of 2^64 values the remainder prefers none by more than limit / 2^64."""
        return int(self._bits.random_raw()) % limit

    def pick(self, items: Sequence[Item]) -> Item:
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        """Fisher and Yates."""
        order = list(items)
        for last in range(len(order) - 1, 0, -1):
            other = self.below(last + 1)
            order[last], order[other] = order[other], order[last]
        return order


def _combined(syllables: tuple[tuple[str, ...], tuple[str, ...]]) -> list[str]:
    beginnings, endings = syllables
    return [beginning + ending for beginning in beginnings for ending in endings]


def _names(count: int, dice: _Dice) -> list[tuple[str, str]]:
    """Distinct pairs of first name and surname, each of them shared by about NAMESAKES people.

    Person i takes first name i mod N and surname i mod N + 1. The two have no common divisor, so that no pair comes
    back before all N (N + 1) are used.
    """
    first_names, surnames = dice.shuffled(_combined(FIRST_NAMES)), dice.shuffled(_combined(SURNAMES))
    most = min(len(first_names), len(surnames) - 1)
    if count > most * (most + 1):
        raise DataError(f"cannot name {count:,} people: the syllables make {most * (most + 1):,} distinct names")
    enough = math.isqrt(count - 1) + 1
    used = min(most, max(enough, count // NAMESAKES))
    return dice.shuffled([(first_names[i % used], surnames[i % (used + 1)]) for i in range(count)])


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


def main(folder: Path, /, *, seed: int = 0, train: int = 300, dev: int = 100, test: int = 50) -> None:
    """Write invented people to a folder: wiki.txt and the questions about them.

    Args:
      folder: Where the files go; made when missing.
      seed: Decides everything.
      train: People whose questions are for training.
      dev: People whose questions are held out.
      test: People whose questions are held out and come without their answers.
    """
    try:
        people = invent(seed, train=train, dev=dev, test=test)
        write(people, folder)
    except (DataError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    print(f"{folder}: {len(people.documents):,} documents about {train + dev + test:,} people, such as")
    for document in people.documents[:5]:
        print(f"  {document}")


if __name__ == "__main__":
    tyro.cli(main)
