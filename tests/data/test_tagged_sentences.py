import dataclasses
import json
import re

import numpy as np
import pytest

from data import DataError
from data.tagged_sentences import TaggedSentences
from jaxnlp.text.tag_schemes import convert
from jaxnlp.text.wordpiece import SPECIAL, WordPieceVocabulary

GRAMMAR = TaggedSentences(sentences=120, held_out_sentences=30, batch_size=8, evaluation_batch_size=16)
ROW = "{}\t{}\t_\t{}\t{}\t{}\t_\t_\t_\t_\n"
TREES = "# x\n" + ROW.format(1, "Ann", "PROPN", "NNP", "Number=Sing") + ROW.format(2, "sees", "VERB", "VBZ", "_") + "\n"
TEXT = "Ann B-PER\nsees O\nNew B-LOC\nYork I-LOC\n\n" * 20


@pytest.fixture(scope="module")
def corpus():
    return GRAMMAR.load(0)


def files(tmp_path, text=TEXT, **fields):
    (tmp_path / "train.txt").write_text(text, encoding="utf-8")
    return TaggedSentences(source="files", train=str(tmp_path / "train.txt"), batch_size=4, **fields)


def test_batches_have_all_sentences_once_and_their_labels(corpus):
    split, processor = corpus.splits["validation"], corpus.processor
    assert len(split.examples) == 30
    row = 0
    for batch in split.batches:
        for labels, mask in zip(batch["labels"], batch["loss_mask"], strict=True):
            if mask.any():
                found = tuple(processor.labels[i] for i in labels[mask])
                assert found == split.examples[split.rows[row]].labels
                row += 1
    assert row == 30
    first = next(iter(corpus.train))
    assert first["words"].shape[0] == 8
    assert first["words"].shape[1] % 16 == 0
    assert {label[:1] for label in processor.labels} == set("OBIES")


def test_the_order_of_training_depends_on_the_seed_and_can_be_continued(corpus):
    batches = iter(corpus.train)
    first = [next(batches) for _ in range(3)]
    state = batches.get_state()
    fourth = next(batches)
    again = iter(corpus.train)
    again.set_state(state)
    np.testing.assert_array_equal(next(again)["words"], fourth["words"])
    other = next(iter(GRAMMAR.load(1).train))
    assert other["words"].shape != first[0]["words"].shape or (other["words"] != first[0]["words"]).any()
    assert GRAMMAR.load(0).fingerprint == corpus.fingerprint != GRAMMAR.load(1).fingerprint


def test_the_small_grammar_has_tags_too():
    tags = dataclasses.replace(GRAMMAR, predict="tags").load(0)
    assert (tags.processor.scheme, "NOUN" in tags.processor.labels) == ("none", True)


def tags(tmp_path, *names, validation=TREES, **fields):
    (tmp_path / "train.conllu").write_text(TREES * 4)
    (tmp_path / "dev.conllu").write_text(validation)
    places = {"train": tmp_path / "train.conllu", "validation": tmp_path / "dev.conllu"}
    return TaggedSentences(source="files", batch_size=4, tags=names, **(places | fields))


def test_several_kinds_of_tags_are_parts_with_labels_each(tmp_path):
    config = tags(tmp_path, "upos", "feats")
    found = config.load(0)
    assert config.parts == ("upos", "feats")
    assert found.processor.parts == (("upos", ("PROPN", "VERB")), ("feats", ("Number=Sing", "_")))
    assert next(iter(found.train)).keys() >= {"upos/labels", "feats/labels", "loss_mask"}
    assert "feats labels of 2 types in training: Number=Sing 4, _ 4" in found.description
    assert config.load(0, found.processor).processor == found.processor
    for names, parts in ((("xpos",), ()), (("feats",), ("feats",))):
        assert tags(tmp_path, *names).parts == parts
    assert tags(tmp_path, "xpos") == dataclasses.replace(config, tags="xpos")
    other = dataclasses.replace(config, tags=("upos", "xpos")).load(0, found.processor)
    assert other.processor.inputs == found.processor.inputs
    assert dict(other.processor.parts)["xpos"] == ("NNP", "VBZ")


def test_a_tag_that_no_training_sentence_has_is_counted_and_kept(tmp_path):
    new = TREES.replace("Number=Sing", "Number=Dual")
    split = tags(tmp_path, "upos", "feats", validation=new + TREES).load(0).splits["validation"]
    (note,) = split.notes
    assert note.startswith("1 word has a tag that no training sentence has: it is an error, and the loss leaves out")
    assert note.endswith("(first: sentence 1, line 2)")
    assert split.examples[0].labels == (("PROPN", "Number=Dual"), ("VERB", "_"))
    assert sorted(split.batches[0]["feats/labels"][:2, 0]) == [-1, 0]
    single = tags(tmp_path, "upos", validation=TREES.replace("VERB", "AUX"))
    with pytest.raises(DataError, match="no training sentence has the label AUX; expected PROPN, VERB"):
        single.load(0)


def test_own_files_are_converted_and_a_tenth_is_held_out(tmp_path):
    found = files(tmp_path).load(0)
    assert (len(found.splits["validation"].examples), found.processor.scheme) == (2, "bioes")
    assert found.splits["validation"].examples[0].labels == ("S-PER", "O", "B-LOC", "E-LOC")
    assert "training: 18 sentences, 72 words" in found.description
    assert "36 entities of 2 types in training: LOC 18, PER 18" in found.description
    assert "labels are read as bio and converted to bioes" in found.description
    note = f"held out for validation: 2 of the 20 sentences of {tmp_path / 'train.txt'}, because"
    assert note in found.description.splitlines()[-1]
    bmes = files(tmp_path, train_scheme="bmes", validation=str(tmp_path / "train.txt")).load(0)
    assert "B-LOC" in bmes.processor.labels
    assert len(bmes.splits["validation"].examples) == 20
    assert "held out for" not in bmes.description


def test_the_held_out_sentences_do_not_depend_on_the_seed(tmp_path):
    text = "".join(f"Ann{number} B-PER\nsees O\n\n" for number in range(40))
    first, second = (files(tmp_path, text).load(seed).splits["validation"].examples for seed in (0, 1))
    assert len(first) == 4
    assert first == second


def test_a_type_that_only_a_held_out_sentence_has_is_a_label(tmp_path):
    (held_out, _) = files(tmp_path).load(0).splits["validation"].examples
    sentences = TEXT.split("\n\n")[:20]
    sentences[int(held_out.name) - 1] = "Mars B-GOD"
    found = files(tmp_path, "\n\n".join(sentences)).load(0)
    assert found.splits["validation"].examples[0].labels == ("S-GOD",)
    assert found.processor.types == ("LOC", "PER", "GOD")


def test_a_run_that_starts_from_an_earlier_one_does_not_score_what_that_has_learned(tmp_path):
    held_out = files(tmp_path)
    held_out.check_after(held_out)
    held_out.check_after(GRAMMAR)
    with pytest.raises(DataError, match=r"the earlier run was trained on .*train.txt, which has sentences of the val"):
        held_out.check_after(dataclasses.replace(held_out, validation="other.txt"))


def test_a_file_in_the_home_folder_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    files(tmp_path)
    assert TaggedSentences(source="files", train="~/train.txt", batch_size=4).load(0).splits["validation"].examples


def test_illegal_labels_and_long_sentences_are_counted(tmp_path):
    text = TEXT + "a O\n" * 9 + "\n" + "Ann O\nRome I-LOC\n\n"
    found = files(tmp_path, text, max_length=5, validation=str(tmp_path / "train.txt")).load(0)
    split = found.splits["validation"]
    illegal = "1 label may not follow the one before it and begins an entity (first: sentence 22, line 111, word 2)"
    divided = "1 sentence is too long and divided (first: sentence 21, line 101, 9 words)"
    assert split.notes == (divided, illegal)
    # A run prints the notes of its splits after the description.
    assert f"training: {illegal}" in found.description
    assert found.description.count(illegal) == 1
    assert [one.name for one in split.examples[-3:]] == ["21.1", "21.2", "22"]
    assert [len(one.words) for one in split.examples[-3:]] == [5, 4, 2]


def test_a_sentence_of_two_thousand_words_is_divided_also_by_tokens_of_a_bert(tmp_path):
    pieces = WordPieceVocabulary.of_pieces([*SPECIAL, "ann", "##n", "sees"])
    text = TEXT + "Annn B-PER\n" * 2000
    found = files(tmp_path, text, validation=str(tmp_path / "train.txt")).load(0, pieces)
    batches = found.splits["validation"].batches
    assert max(batch["pieces"].shape[1] for batch in batches) <= 256
    assert sum(int(batch["loss_mask"].sum()) for batch in batches) == 2080
    assert found.processor.inputs.pieces == pieces


def test_a_bert_reads_the_neighbours_of_a_sentence_in_its_file(tmp_path):
    pieces = WordPieceVocabulary.of_pieces([*SPECIAL, "ann", "sees", "new", "york", "old", "you"])
    labels = {"Ann sees": ["B-PER", "O"], "Old sees": None, "You": ["O"], "York": ["B-LOC"]}
    rows = [{"words": text.split()} | ({"labels": found} if found else {}) for text, found in labels.items()]
    held_out = tmp_path / "held_out.jsonl"
    held_out.write_text("\n".join(map(json.dumps, rows)))
    config = files(tmp_path, context=2, max_pieces=8, validation=str(held_out))
    corpus = config.load(0, pieces)
    read = [
        " ".join(pieces.tokens(corpus.processor.encode(one)["pieces"])) for one in corpus.split("validation").examples
    ]
    assert read == ["[CLS] ann sees old sees [SEP]", "[CLS] old sees you york [SEP]", "[CLS] sees you york [SEP]"]
    scored = config.read_file(held_out, corpus.processor)
    assert [one.before for one in scored.examples] == [(), ("Old", "sees"), ("sees", "You")]
    assert [one.before for one in scored.unlabelled.examples] == [("Ann", "sees")]
    alone = dataclasses.replace(config, context=0).load(0, pieces)
    assert alone.fingerprint != corpus.fingerprint


def test_an_earlier_run_gives_its_vocabulary_and_its_labels(tmp_path, corpus):
    again = GRAMMAR.load(3, corpus.processor)
    assert again.processor == corpus.processor
    other = files(tmp_path).load(0, corpus.processor)
    assert other.processor.inputs == corpus.processor.inputs
    assert other.processor.types == ("LOC", "PER")


@pytest.mark.parametrize(
    ("field", "value", "before"),
    [("lowercase", False, True), ("zero_digits", False, True), ("max_characters", 9, 20), ("minimum_count", 3, 1)],
)
def test_options_of_words_must_be_those_of_an_earlier_run(corpus, field, value, before):
    message = f"data.{field} is {value}, but {before} in the earlier run; set it to {before}"
    with pytest.raises(DataError, match=message):
        dataclasses.replace(GRAMMAR, **{field: value}).load(0, corpus.processor)


def test_the_maximum_lengths_are_those_of_the_new_run(corpus):
    shorter = dataclasses.replace(GRAMMAR, max_length=12, max_pieces=40).load(3, corpus.processor)
    assert (shorter.processor.inputs.max_length, shorter.processor.inputs.max_pieces) == (12, 40)
    assert shorter.processor.inputs.words == corpus.processor.inputs.words
    assert "sentences are too long and divided" in shorter.description


def test_files_to_be_scored_may_have_other_schemes_or_no_labels(tmp_path, corpus):
    path = tmp_path / "x.txt"
    path.write_text("Anna S-PER\nsees O\n\nNew B-LOC\nYork E-LOC\n")
    split = GRAMMAR.read_file(path, corpus.processor)
    assert (split.scored, split.examples[1].labels) == (True, ("B-LOC", "E-LOC"))
    path.write_text("Anna\nsees\n")
    split = GRAMMAR.read_file(path, corpus.processor)
    assert (split.scored, split.examples[0].labels) == (False, None)
    path.write_text("Anna B-PER\nZeus B-GOD\n")
    with pytest.raises(
        DataError,
        match=r"line 2 \(sentence 1, word 2\): no training sentence has an entity of the type GOD; expected PER",
    ):
        GRAMMAR.read_file(path, corpus.processor)
    path.write_text("Anna NOUN\n")
    with pytest.raises(
        DataError, match=r"line 1 \(sentence 1, word 1\): the label 'NOUN' does not belong to the scheme bio"
    ):
        GRAMMAR.read_file(path, corpus.processor)


def test_labels_of_bilou_are_entities_and_written_as_in_the_file(tmp_path):
    found = files(tmp_path, TEXT.replace("B-PER", "U-PER").replace("I-LOC", "L-LOC")).load(0)
    example = found.splits["validation"].examples[0]
    assert (example.labels, example.scheme) == (("S-PER", "O", "B-LOC", "E-LOC"), "bilou")
    assert "labels are read as bilou and converted to bioes" in found.description
    assert "may not follow" not in found.description


WORDS, LABELS = ("Ann", "sees", "New", "York", "City", "Hall"), ("B-PER", "O", "B-LOC", "I-LOC", "I-LOC", "B-LOC")


def written(path, form, *, words=WORDS, labels=LABELS, rows=12):
    """Writes a sentence several times: as columns or labelled words in a scheme, or as a text with positions."""
    if form == "spans":
        entities = [[0, 3, "PER"], [9, 22, "LOC"], [23, 27, "LOC"]]
        line = json.dumps({"text": " ".join(words), "label": entities}) + "\n"
    elif form.startswith("words "):
        line = json.dumps({"words": words, "labels": convert(labels, form.removeprefix("words "))}) + "\n"
    else:
        line = "".join(f"{word} {label}\n" for word, label in zip(words, convert(labels, form), strict=True)) + "\n"
    path.write_text(line * rows)
    return str(path)


@pytest.mark.parametrize(
    ("train", "validation", "scheme", "fields"),
    [
        ("bmes", "spans", "bio", {}),
        ("spans", "bioes", None, {}),
        ("spans", "bilou", "bilou", {}),
        ("spans", "bmes", "bmes", {}),
        ("spans", "bmewo", "bmewo", {}),
        ("spans", "ioe2", "ioe2", {}),
        ("bio", "bilou", "bilou", {}),
        ("bmes", "bioes", None, {}),
        ("bmes", "words bilou", "bilou", {}),
        ("words ioe2", "bio", "bio", {}),
        ("bioes", "spans", "bio", {}),
        ("bmes", "spans", "bio", {"scheme": "bmes"}),
        ("spans", "bmes", "bmes", {"scheme": "bmes"}),
    ],
)
def test_each_file_has_a_scheme_of_its_own(tmp_path, train, validation, scheme, fields):
    given = {split: written(tmp_path / split, form) for split, form in (("train", train), ("validation", validation))}
    config = TaggedSentences(source="files", batch_size=4, **given, **fields)
    found = config.load(0)
    split = found.splits["validation"]
    again = config.read_file(tmp_path / "validation", found.processor)
    for example in (*split.examples, *again.examples):
        assert example.words == WORDS
        assert example.labels == ("S-PER", "O", "B-LOC", "I-LOC", "E-LOC", "S-LOC")
        assert example.scheme == scheme
    assert split.notes == again.notes == ()
    same = config.read_file(tmp_path / "train", found.processor)
    assert {one.labels for one in same.examples} == {split.examples[0].labels}


def test_the_scheme_of_training_is_kept_where_it_fits_or_none_does(tmp_path):
    given = {"train": written(tmp_path / "train", "bio"), "validation": str(tmp_path / "validation")}
    config = TaggedSentences(source="files", batch_size=4, **given)
    (tmp_path / "validation").write_text("Ann I-PER\n")  # of IOB1 and IO, too
    assert config.load(0).splits["validation"].examples[0].scheme == "bio"
    for label in ("X-PER", "B_PER", "VERB"):
        (tmp_path / "validation").write_text(f"Ann B-PER\nsees {label}\n")
        with pytest.raises(DataError, match=rf"line 2 .*: the label '{label}' does not belong to the scheme bio"):
            config.load(0)
    written(tmp_path / "validation", "bioes")
    with pytest.raises(DataError, match="the label 'S-PER' does not belong to the scheme bio"):
        dataclasses.replace(config, scheme="bio").load(0)


def test_a_wrong_label_is_no_scheme_of_the_sentences_that_are_held_out(tmp_path):
    text = TEXT.replace("I-LOC", "E-LOC", 20)
    (held_out, _) = files(tmp_path).load(0).splits["validation"].examples
    sentences = TEXT.split("\n\n")[:20]
    sentences[int(held_out.name) - 1] = text.split("\n\n")[0]
    with pytest.raises(DataError, match="the label 'E-LOC' does not belong to the scheme bio"):
        files(tmp_path, "\n\n".join(sentences)).load(0)


@pytest.mark.parametrize(
    ("text", "fields", "message"),
    [
        (
            TEXT.replace("-", "_"),
            {},
            r"train.txt: B_PER looks like .* as B-PER, .* set --data.scheme none",
        ),
        (
            re.sub(r"(\S+) (\S+)\n", r"\2 \1\n", TEXT),
            {},
            "train.txt: the words look like labels of entities, such as B-PER; choose the columns with",
        ),
        (TEXT.replace("I-LOC", "X-LOC", 1), {"scheme": "bio"}, r"line 4 \(sentence 1, word 4\): the label 'X-LOC'"),
        ("Ann O\n\n" * 20, {}, "the training sentences have no entities"),
        (
            re.sub(r"(\S)\n", r"\1 0.9\n", TEXT),
            {},
            "train.txt: expected at least two distinct labels, got only 0.9; choose",
        ),
        ("Ann B-PER\n\n" * 2, {}, "expected at least 10 sentences, to hold out a tenth of them, got 2"),
        (TEXT, {"max_pieces": 3}, None),
    ],
)
def test_data_that_cannot_be_learnt_is_refused(tmp_path, text, fields, message):
    if message is None:
        with pytest.raises(DataError, match=r"line 1 \(sentence 1\): the word 'Ann'... has 3 tokens of BERT"):
            files(tmp_path, text, **fields).load(0, WordPieceVocabulary.of_pieces([*SPECIAL, "a", "##n"]))
        return
    with pytest.raises(DataError, match=message):
        files(tmp_path, text, **fields).load(0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"train": "x"}, r"data.train applies only to data.source files; set data.source files, or"),
        ({"source": "conll2003_ner", "predict": "tags"}, "data.predict applies only to data.source small_grammar"),
        ({"source": "conll2003_ner", "tags": "xpos"}, "data.tags applies only to data.source files and ud_en_ewt"),
        ({"tags": ("upos", "upos")}, "data.tags must be distinct, and at least one, got upos, upos"),
        ({"tags": ()}, "data.tags must be distinct, and at least one, got none"),
        ({"tags": ("upos", "lemma")}, "data.tags must be one of upos, xpos, feats, got"),
        ({"source": "files", "tags": "feats", "scheme": "bio"}, "data.scheme applies only to one kind of label"),
        (
            {"source": "conll2003_ner", "tags": ("upos", "xpos")},
            "data.tags applies only to data.source files",
        ),
        ({"word_column": -1}, "data.word_column must be at least 0, got -1"),
        ({"max_length": 0}, "data.max_length must be at least 1, got 0"),
        ({"context": 3}, "data.context applies only to sentences of a file; set it to 0, got 3"),
        ({"max_pieces": 2}, "data.max_pieces must be at least 3, got 2"),
    ],
)
def test_options_that_nothing_reads_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        TaggedSentences(**fields)


def test_own_data_needs_a_training_file():
    message = r"data\.source files needs your training file: give it with --data\.train FILE"
    with pytest.raises(DataError, match=message):
        TaggedSentences(source="files").load(0)


@pytest.mark.thorough
@pytest.mark.realdata
@pytest.mark.parametrize(
    ("source", "train", "validation", "labels"),
    [("resume_ner_zh", 3821, 463, 33), ("weibo_ner_zh", 1350, 270, 33), ("conll2003_ner", 14041, 3250, 17)],
)
def test_known_data_sets_have_their_published_sizes(source, train, validation, labels):
    found = TaggedSentences(source=source, max_length=2_000).load(0)
    assert f"training: {train:,} sentences" in found.description
    assert len(found.splits["validation"].examples) == validation
    assert len(found.processor.labels) == labels
