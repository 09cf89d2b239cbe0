import itertools
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from data import DataError
from data.span_corruption import CorruptedText
from data.translation import ParallelText
from jaxnlp.saving.serialization import from_json, processor_from_json, processor_to_json, to_json
from jaxnlp.text.subwords import UNKNOWN, Subwords
from jaxnlp.text.translation import SentencePair, TranslationProcessor

ENGLISH = ["the", "old", "man", "sea", "red", "house", "and", "sees"]
GERMAN = ["das", "alte", "Männer", "Meer", "rote", "Haus", "und", "sieht"]
SIDES = [("source", "source_mask"), ("targets", "loss_mask")]


@pytest.fixture
def folder(tmp_path):
    generator = np.random.default_rng(0)
    for name, count in (("train", 60), ("dev", 9), ("test", 5)):
        rows = [generator.integers(0, 8, generator.integers(1, 9)) for _ in range(count)]
        for ending, words in (("en", ENGLISH), ("de", GERMAN)):
            text = "".join(" ".join(words[i] for i in row) + ".\n" for row in rows)
            (tmp_path / f"{name}.{ending}").write_text(text, encoding="utf-8")
    return tmp_path


def files(folder, name):
    return (str(folder / f"{name}.en"), str(folder / f"{name}.de"))


def config(folder, **fields):
    given = {"train": files(folder, "train"), "validation": files(folder, "dev")}
    small = {"vocabulary_size": 330, "lengths": (8, 16, 32), "batch_tokens": 128}
    return ParallelText(**given | small | fields)


def batch_texts(processor, batch):
    real = batch["loss_mask"].any(axis=1)
    sources, targets = batch["source"][real], batch["targets"][real]
    return [(processor.source.decode(s), processor.target.decode(t)) for s, t in zip(sources, targets, strict=True)]


def first_batches(corpus, count=40):
    return list(itertools.islice(iter(corpus.train), count))


def test_splits_have_the_texts_of_their_files_in_their_order(folder):
    corpus = config(folder, test=files(folder, "test")).load(0)
    assert list(corpus.splits) == ["validation", "test"]
    lines = [(folder / f"test.{ending}").read_text().splitlines() for ending in ("en", "de")]
    assert corpus.split("test").examples == tuple(map(SentencePair, *lines))
    assert corpus.processor.shared
    assert "60 pairs for training, 9 for validation, 5 for test" in corpus.description
    assert "tokens in the vocabulary; " in corpus.description
    assert "% of the positions in training batches are padding" in corpus.description


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_training_has_every_pair_in_an_epoch(folder, dropout):
    corpus = config(folder, bpe_dropout=dropout).load(0)
    lines = [(folder / f"train.{ending}").read_text().splitlines() for ending in ("en", "de")]
    expected = set(zip(*lines, strict=True))
    found, epoch = [], 0
    iterator = iter(corpus.train)
    while epoch == 0:
        found += batch_texts(corpus.processor, next(iterator))
        epoch = len(found) // 60
    assert set(found) == expected
    assert len(found) == 60


def test_dropout_draws_other_tokens_in_each_epoch_and_the_same_after_a_restart(folder):
    corpus = config(folder, bpe_dropout=0.3).load(0)
    batches = first_batches(corpus)
    assert len({batch["source"].shape for batch in batches}) <= 3
    tokens = {}
    for batch in batches:
        for text, row in zip(batch_texts(corpus.processor, batch), batch["source"], strict=False):
            tokens.setdefault(text, set()).add(row.tobytes().rstrip(b"\0"))
    assert sum(len(found) > 1 for found in tokens.values()) > 20
    iterator = iter(corpus.train)
    for _ in range(30):
        next(iterator)
    again = iter(config(folder, bpe_dropout=0.3).load(0, corpus.processor).train)
    again.set_state(iterator.get_state())
    for _ in range(10):
        assert np.array_equal(next(again)["source"], next(iterator)["source"])


def test_a_pair_that_dropout_makes_too_long_is_encoded_without_it(folder):
    corpus = config(folder, bpe_dropout=0.9, lengths=(8, 12)).load(0)
    assert {batch["source"].shape[1] for batch in first_batches(corpus)} <= {8, 12}


def test_a_vocabulary_for_each_language(folder):
    processor = config(folder, shared_vocabulary=False).load(0).processor
    assert not processor.shared
    assert "▁the" in processor.source.vocabulary
    assert "▁the" not in processor.target.vocabulary


def test_long_pairs_are_left_out_of_training_and_named(folder):
    for ending in ("en", "de"):
        lines = (folder / f"train.{ending}").read_text().splitlines()
        lines[6] = "long " * 10_000
        lines[8] = "longer " * 40
        (folder / f"train.{ending}").write_text("\n".join(lines))
    corpus = config(folder).load(0)
    expected = "58 pairs for training (2 of more than 32 tokens removed, the first in line 7 of train.en)"
    assert corpus.description.startswith(expected)
    assert not any(
        "long" in text for batch in first_batches(corpus) for text, _ in batch_texts(corpus.processor, batch)
    )
    with pytest.raises(DataError, match=r"all pairs of .*train.en have more than 2 tokens; raise data.lengths"):
        config(folder, lengths=(2,)).load(0)


def test_a_share_of_the_training_pairs_is_held_out_where_there_is_no_validation_file(folder):
    rows = [f"{source}\t{target}" for source, target in zip(ENGLISH * 2, GERMAN * 2, strict=True)]
    fields = {"train": (str(folder / "all.tsv"),), "validation": (), "validation_fraction": 0.25}
    (folder / "all.tsv").write_text("\n".join(rows))
    corpus = config(folder, **fields).load(0)
    held = {pair.source for pair in corpus.split("validation").examples}
    assert (len(held), len(corpus.split("validation").examples)) == (2, 4)
    for found in (corpus, config(folder, **fields).load(1)):
        seen = {text for batch in first_batches(found) for text, _ in batch_texts(found.processor, batch)}
        assert seen == set(ENGLISH) - held


def test_reverse_translates_in_the_other_direction(folder):
    example = config(folder).load(0).split("validation").examples[0]
    reverse = config(folder, reverse=True)
    corpus = reverse.load(0)
    assert corpus.split("validation").examples[0] == SentencePair(str(example.reference), example.source)
    (folder / "some.tsv").write_text("the sea.\tdas Meer.\n")
    read = reverse.read_file(folder / "some.tsv", corpus.processor)
    assert read.examples == (SentencePair("das Meer.", "the sea."),)


def test_an_earlier_processor_is_kept(folder):
    first = config(folder).load(0)
    read = processor_from_json(json.loads(json.dumps(processor_to_json(first.processor))))
    again = config(folder, vocabulary_size=300).load(0, read)
    assert again.processor == first.processor
    assert again.fingerprint == first.fingerprint
    assert "an earlier start, so data.vocabulary_size and similar options are not read" in again.description
    assert "saved" not in first.description
    with pytest.raises(DataError, match="this data set needs the class TranslationProcessor, got Subwords"):
        config(folder).load(0, first.processor.source)


def test_a_sentencepiece_model_that_is_not_the_vocabulary_of_the_processor_is_refused(folder):
    texts = (folder / "train.en").read_text().splitlines() + (folder / "train.de").read_text().splitlines()
    with (folder / "a.model").open("wb") as model:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(texts), model_writer=model, vocab_size=60, hard_vocab_limit=False, minloglevel=9
        )
    fields = {"train": files(folder, "train"), "lengths": (8, 16, 32), "sentencepiece": (str(folder / "a.model"),)}
    first = ParallelText(**fields).load(0)
    assert ParallelText(**fields).load(0, first.processor).processor == first.processor  # a run goes on
    with pytest.raises(DataError, match=r"a\.model differs from the model's; remove --data\.sentencepiece"):
        ParallelText(**fields).load(0, config(folder).load(0).processor)


def test_unknown_tokens_of_training_are_counted(folder):
    corpus = config(folder, subwords="words", vocabulary_size=10, bpe_dropout=0.0).load(0)
    batches, epoch = iter(corpus.train), []
    while (batch := next(batches)) and batches.get_state()["epoch"] == 0:
        epoch.append(batch)
    cells = [batch[name][batch[mask]] for batch in epoch for name, mask in SIDES]
    share = np.mean(np.concatenate(cells) == UNKNOWN)
    assert share > 0.2
    assert f"; {share:.0%} of the training tokens are unknown; " in corpus.description
    assert "unknown" not in config(folder).load(0).description


def test_truncated_pairs_are_noted_with_the_line_of_their_file(folder):
    lines = (folder / "dev.en").read_text().splitlines()
    (folder / "dev.en").write_text("\n".join([*lines[:4], "sea " * 40, *lines[5:]]))
    data = config(folder, test=files(folder, "test"))
    corpus = data.load(0)
    note = "1 pair was truncated to 32 tokens per side, the first in line 5 of dev.en"
    assert (corpus.split("validation").notes, corpus.split("test").notes) == ((note,), ())
    (folder / "some.txt").write_text("the sea.\n" + "sea " * 40)
    (note,) = data.read_file(folder / "some.txt", corpus.processor).notes
    assert note.endswith("the first in line 2 of some.txt")


def test_truncated_pairs_that_are_held_out_are_noted_with_their_line_in_training(folder):
    sources = [f"{word} {'sea ' * (40 * (place % 2))}".strip() for place, word in enumerate(ENGLISH * 2)]
    (folder / "all.tsv").write_text("\n".join(f"{source}\tdas" for source in sources))
    split = config(folder, train=(str(folder / "all.tsv"),), validation=(), validation_fraction=0.7).load(0).splits
    first = next(pair.source for pair in split["validation"].examples if len(pair.source) > 40)
    assert sources.index(first) > split["validation"].examples.index(SentencePair(first, "das"))
    note = split["validation"].notes[0]
    assert note.endswith(f"32 tokens per side, the first in line {sources.index(first) + 1} of all.tsv")


@pytest.mark.parametrize(
    ("earlier", "fields", "refused"),
    [
        (CorruptedText, {"validation": ()}, "trained on .*train.en, which has sentences of the validation split"),
        (CorruptedText, {}, None),
        (CorruptedText, {"test": ("train.de",)}, "trained on .*train.de, .* the test split; .* --data.test"),
        (CorruptedText, {"train": ("dev.en", "dev.de"), "validation": ()}, None),
        ({"validation": ()}, {"validation": ()}, None),
        ({"validation": ()}, {"validation": (), "validation_fraction": 0.01, "test": ("test.en", "test.de")}, None),
        ({"validation": ()}, {"validation": (), "validation_fraction": 0.1}, "trained on .*train.en"),
        ({"validation": ()}, {"validation": (), "reverse": True}, "trained on .*train.en"),
        ({}, {"validation": ()}, "trained on .*train.en"),
        ({}, {}, None),
        ({"train": ("dev.en", "dev.de")}, {}, "trained on .*dev.en, .* give other files with --data.validation"),
    ],
    ids=str,
)
def test_no_run_is_scored_on_files_that_the_run_before_it_was_trained_on(folder, monkeypatch, earlier, fields, refused):
    monkeypatch.chdir(folder)
    both = {"train": ("train.en", "train.de"), "validation": ("dev.en", "dev.de")}
    if earlier is CorruptedText:
        before = CorruptedText(files=files(folder, "train"))
    else:
        before = ParallelText(**both | earlier)
    after = ParallelText(**both | fields)
    if refused is None:
        after.check_after(before)
    else:
        with pytest.raises(DataError, match=refused):
            after.check_after(before)


def test_files_of_a_public_data_set_are_known_by_its_name():
    before = CorruptedText(data_set="multi30k_en_de", files=("train.en.gz",))
    fields = {"train": ("train.en.gz", "train.de.gz")}
    with pytest.raises(DataError, match=r"the earlier run was trained on train\.en\.gz"):
        ParallelText(data_set="multi30k_en_de", **fields).check_after(before)
    ParallelText(data_set="another", **fields).check_after(before)
    ParallelText(data_set="multi30k_en_de", validation=("val.en.gz", "val.de.gz"), **fields).check_after(before)


def test_the_fingerprint_changes_with_any_sentence_and_not_with_the_seed(folder):
    first = config(folder).load(0)
    assert config(folder).load(1).fingerprint == first.fingerprint
    for name in ("train.de", "dev.en"):
        text = (folder / name).read_text()
        (folder / name).write_text(text.replace("a", "o", 1))
        assert config(folder).load(0, first.processor).fingerprint != first.fingerprint
        (folder / name).write_text(text)


def test_a_file_is_read_with_or_without_references(folder):
    corpus = config(folder).load(0)
    (folder / "some.tsv").write_text("the sea.\tdas Meer.\nthe house.\tdas Haus.\n")
    scored = config(folder).read_file(folder / "some.tsv", corpus.processor)
    assert (scored.scored, scored.examples[1]) == (True, SentencePair("the house.", "das Haus."))
    both = config(folder).read_files((folder / "dev.en", folder / "dev.de"), corpus.processor)
    assert [one.reference for one in both.examples] == (folder / "dev.de").read_text().splitlines()
    sources = config(folder).read_file(folder / "dev.en", corpus.processor)
    assert (sources.scored, len(sources.examples)) == (False, 9)


def test_config_survives_json(folder):
    data = config(folder)
    assert from_json(json.loads(json.dumps(to_json(data))), ParallelText) == data


def test_facts_of_the_data(folder):
    data = config(folder)
    assert (data.max_length, data.parts, data.joint, data.stateful) == (32, (), False, False)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lengths": ()}, r"data.lengths must increase and be at least 2, got \(\)"),
        ({"lengths": (8, 8)}, r"data.lengths must increase and be at least 2, got \(8, 8\)"),
        ({"lengths": (1, 8)}, r"data.lengths must increase"),
        ({"bpe_dropout": 1.0}, r"data.bpe_dropout must be in \[0, 1\), got 1.0"),
        ({"bpe_dropout": 0.1, "subwords": "unigram"}, "applies only to data.subwords bpe; set data.subwords bpe, or"),
        ({"batch_tokens": 0}, "data.batch_tokens must be at least 1, got 0"),
        ({"train": ("a", "b", "c")}, "data.train must be one or two files, got a, b, c"),
        ({"validation": ("a",), "validation_fraction": 0.1}, "applies only to data without a validation file"),
        ({"validation_fraction": 1.0}, r"must be in \(0, 1\), got 1.0"),
        ({"path": "x"}, "data.path is the folder of a public data set, got x; give your own files with --data.train"),
        ({"sentencepiece": ("a",), "vocabulary_size": 9}, "applies only to trained vocabularies"),
        ({"subwords": "words "}, "data.subwords must be one of bpe, unigram, characters, words"),
    ],
)
def test_config_that_cannot_be_is_refused_with_field_and_value(fields, message):
    with pytest.raises(ValueError, match=message):
        ParallelText(**fields)


def test_what_is_missing_or_too_small_is_named(folder):
    with pytest.raises(DataError, match=r"data.train is required: give one or two files with --data.train"):
        ParallelText().load(0)
    with pytest.raises(DataError, match=r"data.vocabulary_size 100: a vocabulary of 100 has no room for tokens"):
        config(folder, vocabulary_size=100).load(0)
    (folder / "a.model").write_text("no model")
    model = {"vocabulary_size": 8_000, "sentencepiece": (str(folder / "a.model"),)}
    with pytest.raises(DataError, match=r"a.model is not a SentencePiece model"):
        config(folder, **model).load(0)
    given = TranslationProcessor(Subwords("words", ("▁the",)), Subwords("words", ("▁the",)))
    with pytest.raises(DataError, match=r"data.bpe_dropout needs subwords of kind bpe; set it to 0 for words"):
        config(folder, bpe_dropout=0.1).load(0, given)


def test_a_file_that_the_folder_of_a_data_set_does_not_have_is_named_with_the_recipe_for_own_files(tmp_path):
    message = (
        "the folder of the data set x, has no en.txt; for your own sentences, use the recipe translation_text_files"
    )
    with pytest.raises(DataError, match=f"{re.escape(str(tmp_path))}, {message}"):
        ParallelText(data_set="x", path=str(tmp_path), train=("en.txt", "de.txt")).load(0)


@pytest.mark.realdata
def test_public_data_sets_and_models_are_found():
    fields = {"train": ("dev.chr", "dev.en"), "sentencepiece": ("src.model", "tgt.model")}
    corpus = ParallelText(data_set="cs224n_a4_chr_en", validation_fraction=0.1, **fields).load(0)
    assert (corpus.processor.source.size, corpus.processor.target.size) == (21_001, 8_001)
    assert len(corpus.split("validation").examples) == pytest.approx(100, abs=3)
    folder = str(Path(os.environ["JAXNLP_DATA"]) / "cmu11785_en_zh")
    own = ParallelText(data_set="x", path=folder, train=("val.txt",), lengths=(4, 6, 8, 12, 16, 32)).load(0)
    assert own.split("validation").examples
    with pytest.raises(FileNotFoundError, match=r"train.en"):
        ParallelText(data_set="no_such_set", train=("train.en", "train.de")).load(0)


@pytest.mark.realdata
def test_batches_of_a_real_data_set_have_few_shapes_and_little_padding():
    names = [tuple(f"{name}.{language}.gz" for language in ("en", "de")) for name in ("val", "test_2016_flickr")]
    data = ParallelText(data_set="multi30k_en_de", train=names[0], validation=names[1], vocabulary_size=2_000)
    corpus = data.load(0)
    batches = first_batches(corpus, 60)
    assert len({batch["targets"].shape for batch in batches}) <= len(data.lengths)
    masks = [batch[name].ravel() for batch in batches for name in ("source_mask", "loss_mask")]
    assert np.concatenate(masks).mean() > 0.7
    assert all(batch["source"].size <= data.batch_tokens for batch in batches)
