"""The trace of one failover or succession: its root span, its boundaries, and who still has to acknowledge.

What is written and told while it is under way carries its place (``regnum_telemetry.tracing``); see
``regnum_telemetry.conventions`` for what the boundaries mean.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import Final

from regnum_telemetry import conventions, tracing
from regnum_telemetry.tracing import Span, Value

PATIENCE_S: Final = 30.0
"""How long a root stays open for acknowledgements."""


class FailoverTrace:
    """One root span. Belongs to the controller's loop."""

    def __init__(
        self,
        name: str,
        *,
        noticed_unix_nano: int,
        attributes: dict[str, Value],
        ended: Callable[[str, float], None] = lambda _name, _seconds: None,
    ) -> None:
        """Begin it.

        Args:
            name: conventions.FAILOVER or conventions.SUCCESSION.
            noticed_unix_nano: when the end of the victim was noticed.
            attributes: of the root.
            ended: takes the name and the seconds since it was noticed, once it is over.
        """
        self._tell = ended
        self._name = name
        self._noticed_unix_nano = noticed_unix_nano
        self._root: Span = tracing.tracer().start(name, attributes=attributes, at_unix_nano=noticed_unix_nano)
        self._boundaries: dict[str, int] = {}
        self._awaited: set[Hashable] = set()
        self._partitions = 0
        self._sealed = False
        self._over = False
        self._ended = asyncio.Event()

    @property
    def context(self) -> str:
        """Place of the root."""
        return self._root.context

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._over

    def reached(self, boundary: str, at_unix_nano: int | None = None, *, again: bool = True) -> None:
        """A boundary, now or then; with ``again`` a later one of the same name replaces it."""
        if again or boundary not in self._boundaries:
            self._boundaries[boundary] = tracing.now_unix_nano() if at_unix_nano is None else at_unix_nano

    def since(self, boundary: str, name: str, attributes: dict[str, Value] | None = None) -> None:
        """A child span from a boundary (or from the beginning) until now."""
        begin = self._boundaries.get(boundary, self._noticed_unix_nano)
        tracing.between(name, begin, tracing.now_unix_nano(), parent=self.context, attributes=attributes)

    def expect(self, tokens: Iterable[Hashable], *, partitions: int = 0) -> None:
        """Wait for these acknowledgements."""
        self._awaited.update(tokens)
        self._partitions += partitions

    def acknowledged(self, token: Hashable) -> bool:
        """An acknowledgement came; those nobody waits for are welcome too. Returns whether it has ended."""
        if token in self._awaited:
            self._awaited.discard(token)
            # One for each leader that is moved: what is not the last of them does no more than this.
            self._boundaries[conventions.DISPATCHED_UNIX_NANO] = tracing.now_unix_nano()
            if not self._awaited:
                self._end_if_over()
        return self._over

    def seal(self) -> None:
        """Nothing further is expected."""
        self._sealed = True
        self._end_if_over()

    async def wait(self) -> None:
        """Return when it has ended, at the latest after the patience; whatever stops the waiting ends it too."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._ended.wait()
        except TimeoutError:
            return
        finally:
            self._end(complete=False)

    def _end_if_over(self) -> None:
        if self._sealed and not self._awaited:
            self._end(complete=True)

    def _end(self, *, complete: bool) -> None:
        if self.done:
            return
        self._over = True
        self._ended.set()
        now = tracing.now_unix_nano()
        last = self._boundaries.setdefault(
            conventions.DISPATCHED_UNIX_NANO, max(self._boundaries.values(), default=now) if complete else now
        )
        begin = self._boundaries.get(
            conventions.WRITTEN_UNIX_NANO, self._boundaries.get(conventions.VERIFIED_UNIX_NANO, last)
        )
        dispatch = conventions.DISPATCH if self._name == conventions.FAILOVER else conventions.INIT_DISPATCH
        tracing.between(dispatch, min(begin, last), last, parent=self.context)
        self._root.set({**self._boundaries, conventions.PARTITIONS: self._partitions, conventions.COMPLETE: complete})
        over = max(last, *self._boundaries.values())
        self._root.end(over)
        self._tell(self._name, max(over - self._noticed_unix_nano, 0) / 1e9)
