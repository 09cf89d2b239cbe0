import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from jaxnlp.corpus import Corpus, DataError, LazyBatch, Split, errors_as


def corpus_of(splits):
    return Corpus(train=(), splits=splits, processor=None, description="two texts", fingerprint="f")


def corpus():
    return corpus_of({"validation": Split(examples=("a", "b")), "test": Split(scored=False)})


def test_a_split_is_found_by_its_name():
    assert corpus().split("validation").examples == ("a", "b")
    assert not corpus().split("test").scored


def test_a_split_that_is_not_there_is_answered_with_those_that_are():
    with pytest.raises(DataError, match="this data set does not have the split 'dev'; it has: validation, test"):
        corpus().split("dev")


def test_the_shapes_of_batches_are_those_of_the_first_one_and_of_validation_unless_the_data_set_gives_them():
    one, two, three = ({"loss_mask": np.zeros(length)} for length in (1, 2, 3))
    split = Split(batches=(two, one, two))
    corpus = dataclasses.replace(corpus_of({"validation": split}), train=[three, one])
    assert corpus.shapes == ([three], [two, one])
    split = dataclasses.replace(split, of_each_shape=[one])
    corpus = dataclasses.replace(corpus, splits={"validation": split}, of_each_shape=[one, two])
    assert corpus.shapes == ([one, two], [one])


def test_a_split_and_a_corpus_compare_by_what_they_are_and_not_by_their_arrays():
    """A comparison of arrays has no truth value: it would raise."""
    first, second = (Split(rows=np.arange(3)) for _ in range(2))
    assert first != second
    assert len({first, second, corpus(), corpus()}) == 4


def test_a_lazy_batch_reads_as_a_batch_and_makes_its_rows_once():
    made = []
    batch = LazyBatch(3, lambda rows: made.append(rows.tolist()) or {"x": rows + 10, "loss_mask": rows >= 0})
    np.testing.assert_array_equal(batch.rows(np.array([2]))["x"], [12])
    assert made == [[2]]
    np.testing.assert_array_equal(dict(batch)["x"], [10, 11, 12])
    assert (list(batch), len(batch), made) == (["x", "loss_mask"], 2, [[2], [0, 1, 2]])


def test_data_needs_no_jax():
    script = "import sys; import jaxnlp.corpus; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_processes_make_the_batches_of_data_that_says_how():
    corpus = Corpus([], {}, None, "", "")
    assert corpus.with_workers(0) is corpus
    with pytest.raises(DataError, match=r"--data.num-workers 2 does not apply: .*, list, have no method with_workers"):
        corpus.with_workers(2)


@pytest.mark.parametrize(("where", "message"), [("a.txt, line 3", "a.txt, line 3: no"), ("", "no")])
def test_errors_in_a_context_are_of_its_kind_and_name_its_place(where, message):
    with pytest.raises(DataError) as caught, errors_as(DataError, where):
        raise ValueError("no")
    assert str(caught.value) == message
