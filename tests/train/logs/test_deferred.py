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
    def interrupted():
        with Deferred() as deferred:
            deferred.later(lambda: made.append("row"))
            raise MemoryError

    made = []
    with pytest.raises(MemoryError):
        interrupted()
    assert made == ["row"]


def test_a_deferred_call_that_fails_is_not_made_again():
    def fail():
        made.append("row")
        raise OSError("disk full")

    deferred, made = Deferred(), []
    deferred.later(fail)
    with pytest.raises(OSError, match="disk full"):
        deferred.now()
    deferred.now()
    assert made == ["row"]
