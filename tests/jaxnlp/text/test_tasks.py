import math

import pytest

from jaxnlp.text.tasks import TASKS


@pytest.mark.parametrize(
    ("name", "texts", "admitted", "refused"),
    [
        ("sst", 1, (0.0, 4.0), (-1.0, 5.0, 0.5, math.nan)),
        ("cfimdb", 1, (0.0, 1.0), (2.0,)),
        ("quora", 2, (0.0, 1.0), (0.5, 2.0)),
        ("sts", 2, (0.0, 2.3, 5.0), (-0.1, 5.1, math.nan)),
    ],
)
def test_tasks_know_their_texts_and_labels(name, texts, admitted, refused):
    task = TASKS[name]
    assert task.name == name
    assert task.texts == texts
    assert all(map(task.admits, admitted))
    assert not any(map(task.admits, refused))
