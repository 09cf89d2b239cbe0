"""Questions with a context about invented people, whose answers only reading finds."""

import random
import re
from collections.abc import Mapping
from typing import Literal

import numpy as np

from data.invented_people import BIRTH_DOCUMENTS, PLACES, InventedPeople, combined
from jaxnlp.text.question_contexts import AnswerSpan, ContextQuestion

PEOPLE = 4
"""Documents in a context about invented people, each about another one."""
SYLLABLE = (
    (*"bcdfghjklmnpqrstvwz", "br", "ch", "gl", "kr", "sh", "st", "tr", ""),
    (*"aeiouy", "ai", "ea", "oo"),
    ("", "", *"lmnrstx", "ck", "ng", "rd", "st"),
)
"""Onsets, vowels and codas of the syllables of new place names."""
NEW_NAMES, HELD_OUT_NAMES = 5_000, 500
"""Number of new names, and of those only in validation."""
_PLACE = re.compile(rf"\b({'|'.join(combined(PLACES))})\b")


def about_people(people: InventedPeople, split: Literal["train", "validation"], seed: int) -> list[ContextQuestion]:
    """Questions about invented people, with contexts of a few documents, each about another person.

    Each document with a birth place gives one question. One more question about each person has no answer: the context
    does not have the birth place. Places have new names in each context, so that only reading finds the answer.
    Validation has other names than training.

    Args:
      people: their documents and questions.
      split: the questions.
      seed: decides the other documents of each context, their order, and the names of places.
    """
    generator, about = np.random.default_rng(seed), dict[str, list[str]]()
    for document in people.documents:
        about.setdefault(document.partition(".")[0], []).append(document)
    names, examples = list(about), list[ContextQuestion]()
    used = sorted({*_PLACE.findall(" ".join(people.documents))})
    new_names = _new_names(NEW_NAMES)
    new_names = new_names[HELD_OUT_NAMES:] if split == "train" else new_names[:HELD_OUT_NAMES]
    for question, place in people.train if split == "train" else people.dev:
        name = question.removeprefix("Where was ").removesuffix(" born?")
        born = [document for document in about[name] if place in document]
        for document in [*born, *(d for d in about[name] if d not in born)][: BIRTH_DOCUMENTS + 1]:
            others = [names[index] for index in generator.choice(len(names), PEOPLE) if names[index] != name]
            parts = [document, *(str(generator.choice(about[other])) for other in others[: PEOPLE - 1])]
            renamed = dict(zip(used, generator.choice(new_names, len(used), replace=False).tolist(), strict=True))
            new = [_with_names(part, renamed) for part in parts]
            context = " ".join(new[index] for index in generator.permutation(len(new)))
            answers: tuple[AnswerSpan, ...] = ()
            if document in born:
                before = _with_names(document.partition(place)[0], renamed)
                start = context.index(new[0]) + len(before)
                answers = (AnswerSpan(start, start + len(renamed[place]), renamed[place]),)
            examples.append(ContextQuestion(str(len(examples) + 1), question, context, answers))
    return examples


def _new_names(count: int) -> list[str]:
    """Distinct names of places, of one to three syllables; one in eight has a second word."""
    generator, names = random.Random(0), dict[str, None]()
    while len(names) < count:
        words = []
        for _ in range(1 + (generator.random() < 1 / 8)):
            parts = (generator.choice(part) for _ in range(generator.randint(1, 3)) for part in SYLLABLE)
            words.append("".join(parts).capitalize())
        names[" ".join(words)] = None
    return list(names)


def _with_names(text: str, names: Mapping[str, str]) -> str:
    return _PLACE.sub(lambda place: names[place.group()], text)
