from data.readers.raw_sentences import Counts, RawSentence
from data.readers.tagged_summary import summary
from jaxnlp.text.tag_schemes import labels_of
from jaxnlp.text.tagger_processor import TaggedSentence, TaggerProcessor
from jaxnlp.text.word_inputs import WordInputs


def test_a_summary_says_what_the_data_has():
    train = [TaggedSentence("1", ("Ann", "sees"), ("B-PER", "O")), TaggedSentence("2", ("Rome",), ("B-LOC",), "iob1")]
    processor = TaggerProcessor(
        WordInputs.of_sentences(one.words for one in train), labels_of(("LOC", "PER"), "bio"), "bio"
    )
    counts = Counts()
    counts.add_illegal(RawSentence((7, 8), 3, ("a", "b"), ("O", "I-X")), [1])
    counts.add_illegal(RawSentence((9,), 4, ("a",), ("O",)), [])
    counts.add_divided(RawSentence((12,) * 2_000, 5, ("a",) * 2_000, None))
    held_out = [TaggedSentence("1", ("Ann", "falls"), ("B-PER", "O"))]
    text = summary(processor, {"training": train, "validation": held_out}, counts)
    assert text.split("\n") == [
        "training: 2 sentences, 3 words, longest 2",
        "validation: 1 sentence, 2 words, longest 2, 50.0% unknown",
        "2 entities of 2 types in training: LOC 1, PER 1",
        "labels are read as iob1 and converted to bio",
        "training: 1 label may not follow the one before it and begins an entity (first: sentence 3, line 7, word 2)",
        "training: 1 sentence is too long and divided (first: sentence 5, line 12, 2,000 words)",
        "length of training sentences: median 2, 95% have at most 2",
        "3 words and 7 characters in the vocabulary, 5 labels",
    ]
