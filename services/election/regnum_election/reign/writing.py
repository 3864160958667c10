"""The store as one reign may use it: every write carries the reign's fence, and no outcome stays unknown.

An unknown outcome is settled by repeating the same conditional operation (safety rule S1, ``recipes.resolve``).
Whoever gets a refusal reads the nodes again and decides again.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final, Protocol, TypeVar, assert_never

from regnum_coordination.errors import (
    BadVersion,
    Compacted,
    ConnectionLoss,
    InvalidRequest,
    NoAuth,
    NodeFailure,
    NoNode,
    SessionExpired,
)
from regnum_coordination.paths import check_path
from regnum_coordination.port import (
    Check,
    Expired,
    Fenced,
    Group,
    Node,
    Operation,
    OperationResult,
    Outcome,
    Refused,
    SessionState,
    Set,
    Store,
    TreePage,
    Unknown,
    Written,
)
from regnum_coordination.recipes.resolve import Resolver
from regnum_model import paths
from regnum_service.clock import Clock
from regnum_telemetry import conventions, tracing

from regnum_election.reign.probe_write import probe_write
from regnum_election.reign.reign import DeposedError, Reign

REPEAT_INTERVAL_S: Final = 0.1
"""Pause before an unanswered read is repeated."""

READ_PATHS: Final = 1_000
"""Paths of one bulk read; the loop is free between two of them (safety rule S22)."""


GROUPS_PER_WRITE: Final = 250
"""Groups of one batch; the loop is free between two of them (safety rule S22)."""


class PageTaker(Protocol):
    """What takes in the pages of a tree."""

    def take(self, page: TreePage) -> None:
        """Another page; takes no longer than few milliseconds."""


P = TypeVar("P", bound=PageTaker)
T = TypeVar("T")


CLOSED_S: Final = 10.0
"""Time for which a node counts as closed after a write of it was refused."""


class NotTaken(NodeFailure):
    """The store does not take a write: it is too large, its path is one that no store has, or its node is closed.

    What a client or a person wrote is the reason, and they are told; nobody else's work ends with it. A store that
    takes no write at all is waited for instead.
    """


class NodeClosed(NotTaken):
    """A node that the store refuses this process while it takes other writes; a person may open it at any time."""


WENT_BACK: Final = (
    "the coordination store was put back to an earlier state: no partition gets another leader and nothing is changed "
    "until a person has it treated as restored; see `regnum restore --in-place`"
)
"""Why a reign over such a store writes nothing."""


class FencedStore:
    """Reads and writes of one reign. Every method raises DeposedError when the reign is over."""

    def __init__(self, store: Store, reign: Reign, clock: Clock) -> None:
        self._store = store
        self._reign = reign
        self._clock = clock
        self._resolver = Resolver(store, clock, takes_writes=self._takes_writes)
        self._unread: dict[object, str] = {}
        self._unwritten: dict[str, tuple[float, str]] = {}
        self._guards_version: int | None = None
        """What attempts to create guards check; None: none was made that may still happen."""

    @property
    def closed(self) -> str:
        """Why the store refuses the reign some node; empty: it does not.

        One that may not be read is waited for: it may say something else than before.
        """
        since_s = self._clock.monotonic() - CLOSED_S
        self._unwritten = {path: met for path, met in self._unwritten.items() if met[0] > since_s}
        return next(iter((*self._unread.values(), *(text for _, text in self._unwritten.values()))), "")

    async def _takes_writes(self) -> bool:
        try:
            await probe_write(self._store)
        except (ConnectionLoss, InvalidRequest, SessionExpired):
            return False
        return True

    async def write_batch(self, groups: Sequence[Group]) -> tuple[Written | Refused, ...]:
        """Small groups, each on its own; a definite outcome for each. One that can never be written: NotTaken."""
        if not groups:
            return ()
        if self._reign.went_back:
            return tuple(Refused(NotTaken(group[-1].path, WENT_BACK)) for group in groups)
        outcomes: list[Written | Refused] = []
        with tracing.span(conventions.STORE_WRITE, attributes={conventions.WRITES: len(groups)}) as span:
            for start in range(0, len(groups), GROUPS_PER_WRITE):
                some = groups[start : start + GROUPS_PER_WRITE]
                written = await self._resolver.write_batch(some, fence=self._reign.fence)
                outcomes.extend(self._definite(group, outcome) for group, outcome in zip(some, written, strict=True))
            span.set({conventions.WRITES_REFUSED: sum(isinstance(outcome, Refused) for outcome in outcomes)})
        return tuple(outcomes)

    async def write_guards(self, groups: Sequence[Group]) -> tuple[Written | Refused, ...]:
        """As ``write_batch``, for groups that create guards of topics: none happens after ``outdate_guards``.

        Every other write of a topic checks the topic's guard, and one that comes late finds that gone with the topic.
        The one that makes the guard checks the version of the folder of guards instead (safety rules S1 and S14).
        """
        outcomes: dict[int, Written | Refused] = {}
        while missing := [i for i in range(len(groups)) if i not in outcomes]:
            if self._guards_version is None:
                folder = (await self.read_many((paths.TOPIC_IDS,))).get(paths.TOPIC_IDS)
                # Where somebody has removed it, no guard can be made.
                self._guards_version = 0 if folder is None else folder.stat.version
            check = Check(paths.TOPIC_IDS, self._guards_version)
            for i, outcome in zip(missing, await self.write_batch([(check, *groups[i]) for i in missing]), strict=True):
                match outcome:
                    case Refused(error=BadVersion(path=paths.TOPIC_IDS)):
                        # A person has written the folder: its version is read again.
                        self._guards_version = None
                    case Written(results=results):
                        outcomes[i] = Written(results[1:])
                    case Refused():
                        outcomes[i] = outcome
        return tuple(outcomes[i] for i in range(len(groups)))

    async def outdate_guards(self) -> None:
        """Have no attempt to create a guard happen any more that has not happened yet; to be called between them."""
        if self._guards_version is None:
            return
        (outcome,) = await self.write_batch([(Set(paths.TOPIC_IDS, b"", self._guards_version),)])
        # Another refusal says that the folder has moved on, or is gone.
        if not (isinstance(outcome, Refused) and isinstance(outcome.error, NotTaken)):
            self._guards_version = None

    async def multi(self, operations: Sequence[Operation]) -> tuple[OperationResult, ...]:
        """All operations or none; raises what refuses them."""
        return results_of(*await self.write_batch([tuple(operations)]))

    async def read_many(self, wanted: Sequence[str]) -> dict[str, Node]:
        """The nodes that exist, as of now, by path. A path that no store has is one where nothing is."""
        found: dict[str, Node] = {}
        for start in range(0, len(wanted), READ_PATHS):
            chunk = [path for path in wanted[start : start + READ_PATHS] if is_path(path)]
            if not chunk:
                continue
            nodes = await self._answered(partial(self._store.get_many, chunk, current=True))
            found.update((path, node) for path, node in zip(chunk, nodes, strict=True) if node is not None)
        return found

    async def names(self, folder: str) -> tuple[str, ...]:
        """Children of a folder as of now; none when there is no folder."""
        if not is_path(folder):
            return ()
        try:
            return (await self._answered(partial(self._store.children, folder, current=True))).names
        except NoNode:
            return ()

    @property
    def reads_trees(self) -> bool:
        """Whether a tree is read at one moment and faster than its nodes by name."""
        return self._store.tree_watch_offered

    async def read_tree(self, path: str, begin: Callable[[], P]) -> P:
        """A node and everything below it, as of now.

        Args:
            path: the node.
            begin: makes what takes the pages in; called again when a read has to begin anew.
        """

        async def read() -> P:
            taker = begin()
            async with aclosing(self._store.read_tree(path, current=True)) as pages:
                async for page in pages:
                    taker.take(page)
            return taker

        return await self._answered(read)

    async def has_below(self, path: str) -> bool:
        """Whether anything lies below a node, at whatever depth; reads until something shows.

        On etcd a person can write a node whose parent does not exist: no listing of children names it.
        """

        async def read() -> bool:
            async with aclosing(self._store.read_tree(path, current=True)) as pages:
                async for page in pages:
                    if not page.nodes.keys() <= {path}:
                        return True
            return False

        return await self._answered(read)

    async def _answered(self, read: Callable[[], Awaitable[T]]) -> T:
        """What a read answers, begun anew until it does."""
        asked = object()
        try:
            while True:
                try:
                    return await read()
                except Compacted:
                    continue
                except ConnectionLoss as error:
                    if isinstance(error, NoAuth):
                        self._unread[asked] = str(error)
                    await self._pause()
                except SessionExpired:
                    raise DeposedError("the session is over") from None
        finally:
            self._unread.pop(asked, None)

    async def until_connected(self) -> None:
        """Return when the session is confirmed: at its local deadline a controller stops acting (safety rule S8)."""
        while self._store.session_state is not SessionState.CONNECTED:
            await self._pause()

    def _definite(self, group: Group, outcome: Outcome) -> Written | Refused:
        match outcome:
            case Refused(error=InvalidRequest() as error):
                return Refused(NotTaken(group[-1].path, str(error)))
            case Refused(error=NoAuth() as error):
                self._unwritten[group[-1].path] = (self._clock.monotonic(), str(error))
                return Refused(NodeClosed(group[-1].path, str(error)))
            case Written() | Refused():
                self._unwritten.pop(group[-1].path, None)
                return outcome
            case Fenced():
                raise DeposedError("a later controller has the epoch")
            case Expired():
                raise DeposedError("the session is over")
            case Unknown():
                raise AssertionError("the resolver has no deadline and never leaves an outcome unknown")
            case _:
                assert_never(outcome)

    async def _pause(self) -> None:
        if self._store.session_state is SessionState.LOST:
            raise DeposedError("the session is over")
        await self._clock.sleep(REPEAT_INTERVAL_S)


def results_of(outcome: Written | Refused) -> tuple[OperationResult, ...]:
    """The results of a group that was written; raises what refused it."""
    match outcome:
        case Written(results=results):
            return results
        case Refused(error=error):
            raise error
        case _:
            assert_never(outcome)


def is_path(path: str) -> bool:
    """Whether a store may have such a path; names come from what people write, too."""
    try:
        check_path(path)
    except InvalidRequest:
        return False
    return True
