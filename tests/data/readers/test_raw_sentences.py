from data.readers.raw_sentences import Counts, RawSentence


def test_irregular_things_are_counted_and_the_first_of_each_kind_is_named():
    counts = Counts()
    assert counts.notes() == ()
    counts.add_illegal(RawSentence((6,), 2, ("a",), ("O",)), [])
    assert counts.notes() == ()
    counts.add_illegal(RawSentence((7, 8), 3, ("a", "b"), ("O", "I-X")), [1])
    counts.add_divided(RawSentence((12,) * 2_000, 5, ("a",) * 2_000, None))
    place = "(first: sentence 3, line 7, word 2)"
    divided = "1 sentence is too long and divided (first: sentence 5, line 12, 2,000 words)"
    assert counts.notes() == (f"1 label may not follow the one before it and begins an entity {place}", divided)
    counts.add_illegal(RawSentence((9, 10), 4, ("a", "b"), ("I-Y", "I-X")), [0, 1])
    counts.add_sentence("blank and skipped", "line 20")
    counts.add_sentence("blank and skipped", "line 21")
    several = f"3 labels may not follow the ones before them and begin entities {place}"
    assert counts.notes() == (several, divided, "2 sentences are blank and skipped (first: line 20)")
