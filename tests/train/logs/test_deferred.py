import pytest

from train.logs.deferred import Deferred


def test_a_deferred_call_is_made_once_when_it_is_due_or_at_the_end():
    made = []
    with Deferred() as deferred:
        deferred.now()
        deferred.later(lambda: made.append("first"))
        assert made == []
        deferred.now()
        deferred.now()
        assert made == ["first"]
        deferred.later(lambda: made.append("second"))
    assert made == ["first", "second"]


def test_a_deferred_call_is_made_after_an_error():
    made = []
    with pytest.raises(MemoryError), Deferred() as deferred:
        deferred.later(lambda: made.append("row"))
        raise MemoryError
    assert made == ["row"]


def test_a_deferred_call_that_fails_is_not_made_again():
    def fail():
        made.append("row")
        raise OSError("disk full")

    made = []
    with pytest.raises(OSError, match="disk full"), Deferred() as deferred:
        deferred.later(fail)
        deferred.now()
    assert made == ["row"]
