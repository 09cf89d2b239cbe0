"""A call that is made later, when the device has its next work."""

from collections.abc import Callable


class Deferred:
    """At most one call that is made later; a context manager, which makes it at its end, also after an error."""

    def __init__(self) -> None:
        self._call: Callable[[], None] | None = None

    def later(self, call: Callable[[], None]) -> None:
        """Defers a call. The one before must have been made."""
        assert self._call is None
        self._call = call

    def now(self) -> None:
        """Makes the deferred call, if there is one."""
        call, self._call = self._call, None
        if call is not None:
            call()

    def __enter__(self) -> "Deferred":
        return self

    def __exit__(self, *_: object) -> None:
        self.now()
