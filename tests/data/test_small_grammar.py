from collections import Counter

import pytest

from data import DataError
from data.pipelines.transition_oracle import is_projective
from data.small_grammar import grammar_sentences, past_of, plural_of, third_person
from jaxnlp.text.conllu import tree_problem


@pytest.fixture(scope="module")
def sentences():
    return grammar_sentences(2_000, seed=3)


def test_trees_are_projective_and_have_one_root(sentences):
    for sentence in sentences:
        assert tree_problem(sentence.heads) is None
        assert sentence.heads.count(0) == 1
        assert is_projective(sentence.heads)
        assert [sentence.relations[place] for place, head in enumerate(sentence.heads) if head == 0] == ["root"]
        assert len({*map(len, sentence)}) == 1


def test_labels_are_bio(sentences):
    for sentence in sentences:
        for before, label in zip(("O", *sentence.labels), sentence.labels, strict=False):
            if label.startswith("I-"):
                assert before[2:] == label[2:]
    found = {label for sentence in sentences for label in sentence.labels}
    assert found == {"O", *(f"{place}-{kind}" for place in "BI" for kind in ("PER", "LOC", "ORG"))}


def test_subjects_agree_with_their_verbs(sentences):
    """These in a subject and a verb in the singular, or the other way round, never come together."""
    checked = 0
    for sentence in sentences:
        for place, (head, relation) in enumerate(zip(sentence.heads, sentence.relations, strict=True), 1):
            auxiliaries = [
                word
                for word, above, kind in zip(sentence.words, sentence.heads, sentence.relations, strict=True)
                if above == head and kind in ("aux", "cop") and word in ("is", "are", "has", "have", "was", "were")
            ]
            determiners = [
                word.lower()
                for word, above in zip(sentence.words, sentence.heads, strict=True)
                if above == place and word.lower() in ("this", "these")
            ]
            if relation == "nsubj" and auxiliaries and determiners:
                assert (auxiliaries[0] in ("are", "have", "were")) == (determiners[0] == "these"), sentence.words
                checked += 1
    assert checked > 20


def test_prepositional_phrases_need_their_words_to_be_attached(sentences):
    """A phrase with "with" or "in" belongs to the verb or to the noun; no rule on tags decides which."""
    kinds = Counter(
        (sentence.words[place], sentence.relations[head - 1])
        for sentence in sentences
        for place, (head, relation) in enumerate(zip(sentence.heads, sentence.relations, strict=True))
        if relation == "case"
    )
    for preposition in ("with", "in"):
        assert min(kinds[preposition, "obl"], kinds[preposition, "nmod"]) > 10


def test_words_have_several_tags_and_names_several_types(sentences):
    tags, types = Counter(), Counter()
    for sentence in sentences:
        tags.update(zip(sentence.words, sentence.tags, strict=True))
        types.update((word, label[2:]) for word, label in zip(sentence.words, sentence.labels, strict=True))
    assert min(tags["plans", "NOUN"], tags["plans", "VERB"]) > 0
    assert min(types["Paris", "PER"], types["Paris", "LOC"]) > 10
    assert min(types["Ford", "PER"], types["Ford", "ORG"]) > 10


def test_sentences_are_functions_of_the_seed_and_differ_from_those_of_another_split(sentences):
    assert grammar_sentences(100, seed=3) == sentences[:100]
    assert grammar_sentences(100, seed=4) != sentences[:100]
    other = grammar_sentences(500, seed=3, without=sentences)
    assert not {one.words for one in other} & {one.words for one in sentences}
    assert len({one.words for one in sentences}) == len(sentences)


def test_more_sentences_than_there_are_are_refused(monkeypatch):
    one = type("One", (), {"words": ("a",)})()
    monkeypatch.setattr("data.small_grammar._Grammar.sentence", lambda self: one)
    with pytest.raises(DataError, match="1 different sentences of 2; ask for fewer"):
        grammar_sentences(2, seed=0)


@pytest.mark.parametrize(
    ("word", "plural"),
    [("child", "children"), ("city", "cities"), ("boy", "boys"), ("watch", "watches"), ("eye", "eyes")],
)
def test_plurals(word, plural):
    assert plural_of(word) == plural


def test_forms_of_verbs():
    assert [third_person(verb) for verb in ("try", "say", "watch", "see")] == ["tries", "says", "watches", "sees"]
    assert [past_of(verb) for verb in ("try", "stay", "like", "see", "help")] == [
        "tried",
        "stayed",
        "liked",
        "saw",
        "helped",
    ]
