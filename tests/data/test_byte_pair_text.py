import json

import numpy as np
import pytest

from data import DataError
from data.byte_pair_text import BytePairText
from jaxnlp.text.byte_pairs import BytePairs

TEXT = "".join(f"the cat number {n} and the dog number {n * n}\n" for n in range(60))


def config(folder, **changes):
    path = folder / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    fields = {"source": "text_file", "path": str(path), "batch_size": 4, "sequence_length": 8, "vocabulary_size": 300}
    return BytePairText(**fields | changes)


def test_windows_have_the_tokens_of_the_text(tmp_path):
    corpus = config(tmp_path).load(0)
    assert corpus.processor.size == 300
    assert corpus.description.startswith("text_file: ")
    assert " tokens, 300 distinct; " in corpus.description
    scored = [batch["targets"][batch["loss_mask"]] for name in corpus.splits for batch in corpus.split(name).batches]
    text = corpus.processor.decode(np.concatenate(scored))
    first = corpus.processor.decode(corpus.processor.encode(TEXT)[:1])
    assert len(first + text) > 0.98 * len(TEXT)  # the first token of each part is not scored
    batch = next(iter(corpus.train))
    assert batch["tokens"].shape == (4, 8)
    assert corpus.processor.decode(batch["tokens"][0]) in TEXT


def test_merges_are_learned_from_the_training_text_alone(tmp_path):
    held_out = config(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT + "zyzzyva " * 30)
    learned = held_out.load(0).processor
    assert len(learned.encode(" zyzzyva")) > 3
    assert len(learned.encode(" number")) == 1


def test_the_text_is_cut_once_and_the_merges_are_those_of_the_training_tokens(tmp_path):
    """Long words at the end have fewer characters a token: 90 % of the tokens were not 90 % of the characters."""
    held_out = config(tmp_path)
    text = TEXT + "zyzzyva " * 60
    (tmp_path / "text.txt").write_text(text)
    corpus = held_out.load(0)
    training = [batch["tokens"][:, :1][batch["loss_mask"][:, :1]] for batch in corpus.split("train").batches]
    first = corpus.processor.encode(text[: int(0.9 * len(text))])
    np.testing.assert_array_equal(np.concatenate(training), first[:-1:8])
    assert f"{len(first):,} for training" in corpus.description


def test_a_given_tokenizer_is_used(tmp_path):
    given = config(tmp_path).load(0).processor
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(given.to_json()["tokenizer"]))
    fields = {"source": "text_file", "path": str(tmp_path / "text.txt"), "sequence_length": 8, "batch_size": 4}
    assert BytePairText(**fields, tokenizer=str(path)).load(0).processor == given
    BytePairText(**fields, tokenizer=str(path)).load(0, given)  # a run goes on
    other = BytePairs.of([TEXT], 290)
    with pytest.raises(DataError, match=r"differs from the model's of 290 tokens; remove --data\.tokenizer"):
        BytePairText(**fields, tokenizer=str(path)).load(0, other)
    path.write_text("{}")
    with pytest.raises(DataError, match=r"data\.tokenizer: .*tokenizer\.json"):
        BytePairText(**fields, tokenizer=str(path)).load(0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"vocabulary_size": 255}, r"data\.vocabulary_size must be at least 256"),
        ({"tokenizer": "tokenizer.json"}, r"data\.vocabulary_size applies only to merges"),
    ],
)
def test_wrong_fields_are_refused(tmp_path, fields, message):
    with pytest.raises(ValueError, match=message):
        config(tmp_path, **fields)
