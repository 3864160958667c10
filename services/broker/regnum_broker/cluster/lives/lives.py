"""Lives of the broker's log directory: begun with each registration and each minute, judged each time (S10, T8, T9).

What each finding means is in ``log.life``; here it is read, acted on and written. A run that has registered knows its
own lives: where the store then has one that is not among them, another process goes on with a copy of the directory.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from regnum_coordination.errors import ConnectionLoss, NodeFailure, SessionExpired
from regnum_coordination.port import Check, Create, Node, Operation, OperationResult, Set, Store
from regnum_coordination.recipes.resolve import Resolver
from regnum_coordination.timing import Backoff
from regnum_model import paths
from regnum_model.ids import BrokerId, DirectoryId, LogId
from regnum_model.nodes import MalformedNodeError
from regnum_model.nodes.lives import Life, LifeNode
from regnum_service.clock import Clock
from regnum_service.errors import StartRefusedError

from regnum_broker.cluster.lives.went_back import WentBack
from regnum_broker.cluster.sessions import Sessions
from regnum_broker.identity import Identity
from regnum_broker.log.errors import ResourceExhaustedError
from regnum_broker.log.life import NO_LIVES, Fit, KnownLives, judge
from regnum_broker.storage import Storage

INTERVAL_S: Final = 60.0
"""How long a life lasts: what a disk or a store loses of the last one is not noticed."""

RENEWED: Final = {
    Fit.FORGOTTEN: "the store does not know this log directory any more: it was forgotten, or the store is from before",
    Fit.DIRECTORY_BEHIND: "the log directory is older than the store knows it: it was put back to an earlier copy, its"
    " disk had failed, or it is new",
    Fit.UNKNOWN: "another disk was this broker's meanwhile, or a life of this one cannot be read",
}
"""Why a log gets another id."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the store says."""

    node: Node | None
    life: LifeNode | None
    """None: there is none, or none that can be read."""
    tree: str | None
    stands: bool
    """Whether the store is known to have gone back."""

    @property
    def life_id(self) -> Life | None:
        return None if self.life is None else self.life.life


class Lives:
    """The companion of the broker's registrations. Belongs to the event loop."""

    def __init__(
        self,
        broker: BrokerId,
        *,
        storage: Storage,
        sessions: Sessions,
        identity: Callable[[], Identity | None],
        went_back: WentBack,
        mint_id: Callable[[], str],
        clock: Clock,
    ) -> None:
        """Only assigns.

        Args:
            broker: its id.
            storage: whose directory lives.
            sessions: with the store.
            identity: the present registration.
            went_back: told of each proof.
            mint_id: makes ids of logs, and that of this run's lives.
            clock: source of time.
        """
        self._broker: Final = broker
        self._path: Final = paths.broker_life(broker)
        self._storage: Final = storage
        self._sessions: Final = sessions
        self._identity: Final = identity
        self._went_back: Final = went_back
        self._mint_id: Final = mint_id
        self._run: Final = mint_id()
        self._clock: Final = clock
        self._fit: Fit | None = None
        """How directory and store went together at the last registration."""
        self._has_registered = False
        self._pending: tuple[Life, str | None] | None = None
        """Proposed, with the tree id."""
        self.tree: str | None = None
        """Tree id of the store when it was looked at last."""
        self._log: Final = structlog.get_logger("lives")

    async def store_went_back(self, store: Store) -> bool:
        """Whether it is known, or proved by this look, that the store went back. Raises SessionExpired."""
        seen = await self._look(store)
        if not seen.stands and self._judge(seen) is Fit.STORE_BEHIND:
            await self._tell(store, seen)
        return self._went_back.stands

    async def prove(self, store: Store, proof: str) -> None:
        """Tell all that the store went back, for another reason. Raises SessionExpired."""
        await self._went_back.tell(store, proof)

    async def fits_now(self, store: Store | None) -> bool:
        """Whether the store's word may delete what the directory holds, by the registration and by now (S13)."""
        if store is None or self._fit is None or not self._fit.may_delete:
            return False
        try:
            seen = await self._look(store)
        except SessionExpired:
            return False
        return not seen.stands and self._judge(seen).fits

    async def propose(self) -> Sequence[Operation]:
        """See ``Companion``. Raises StartRefusedError, SessionExpired."""
        seen, fit = await self._judged()
        self._fit = fit
        try:
            if (why := RENEWED.get(fit)) is not None:
                await self._renew(why, seen)
            return await self._proposed(seen, fit)
        except ResourceExhaustedError as error:
            return self._without_room(seen, error)

    async def _judged(self) -> tuple[_Seen, Fit]:
        """What the store says, and what that means. Raises StartRefusedError, SessionExpired."""
        store = await self._sessions.wait_store()
        seen = await self._look(store)
        fit = self._judge(seen)
        is_another = fit in {Fit.DIRECTORY_BEHIND, Fit.UNKNOWN} and self._has_registered
        # A process whose disk failed has put the store ahead itself.
        if is_another and not self._storage.directory.proof.is_void:
            raise StartRefusedError(
                f"another process has a copy of this directory: {self._storage.directory.path} was last confirmed with "
                f"life {self._known.confirmed}, and the store has {seen.life_id}, which this process did not write. "
                "Stop the other one, or this one for good: a copied volume is no second broker"
            )
        if fit is Fit.STORE_BEHIND:
            await self._tell(store, seen)
        return seen, fit

    def _without_room(self, seen: _Seen, error: ResourceExhaustedError) -> Sequence[Operation]:
        """A disk that cannot take a proposal begins no life: what was judged has to stand."""
        self._log.error("no room to begin a life", reason=str(error))
        self._pending = None
        return () if seen.node is None else (Check(self._path, seen.node.stat.version),)

    async def confirmed(self, results: Sequence[OperationResult]) -> None:  # noqa: ARG002 - what the companion is told
        """See ``Companion``."""
        self._has_registered = True
        pending, self._pending = self._pending, None
        if pending is None:
            return
        life, tree = pending
        try:
            await self._note(KnownLives.confirming(life, tree=tree))
        except ResourceExhaustedError as error:
            # It stays proposed, which fits as well.
            self._log.error("no room to confirm a life", reason=str(error))

    async def run(self) -> None:
        """Begin a life each minute for ever; a task of the supervisor. Raises StartRefusedError."""
        while True:
            await self._clock.sleep(INTERVAL_S)
            store, identity = self._sessions.store, self._identity()
            if store is not None and identity is not None:
                await self.begin(store, identity)

    async def begin(self, store: Store, identity: Identity) -> None:
        """Begin another life under a registration that stands. Raises StartRefusedError.

        The log keeps its id whatever is found: the process has held the directory since it registered.
        """
        guard = Check(paths.broker_epoch(self._broker), identity.registration)
        try:
            seen, fit = await self._judged()
            operations = await self._proposed(seen, fit)
            results = await Resolver(store, self._clock).multi([guard, *operations])
        except (NodeFailure, ResourceExhaustedError) as error:
            # The registration is over, and the next one begins a life; or the next minute says what has come between.
            self._log.info("life not begun", reason=str(error))
        except SessionExpired:
            pass
        else:
            await self.confirmed(results)

    async def end(self) -> None:
        """The disk failed: begin a life in the store alone, for the directory may not be able to note it (D32).

        So the next start finds a directory that is behind: another log, which the store's word may delete from, as it
        could not if the life were deleted. Returns when that is definite. Raises SessionExpired.
        """
        store = await self._sessions.wait_store()
        resolver = Resolver(store, self._clock)
        while True:
            seen = await self._look(store)
            if seen.node is None or self._judge(seen) is not Fit.FITS:
                return
            # Not named after the run: its proposal of this very count may be on the disk, though the disk refused it.
            life = Life(id=self._mint_id(), count=self._known.next_after(seen.life_id))
            directory = self._storage.directory.directory_id
            if self._known.tree != seen.tree:
                # A later life of this directory under a tree that it has not confirmed would prove that the store went
                # back (``log.life``): it is left to nobody, and the log gets another id all the same.
                directory = DirectoryId(self._mint_id())
            data = LifeNode(life=life, directory=directory).encode()
            try:
                await resolver.multi([Set(self._path, data, seen.node.stat.version)])
            except NodeFailure:
                continue
            self._log.warning("the store knows a later life than the failed log directory", life=str(life))
            return

    @property
    def _known(self) -> KnownLives:
        return self._storage.directory.proof.lives or NO_LIVES

    def _judge(self, seen: _Seen) -> Fit:
        directory = self._storage.directory
        if seen.node is not None and seen.life is None:
            return Fit.UNKNOWN
        return judge(directory.proof.lives, seen.life, tree=seen.tree, directory=directory.directory_id)

    async def _look(self, store: Store) -> _Seen:
        attempts = 0
        while True:
            try:
                node, tree, mark = await store.get_many([self._path, paths.TREE_ID, paths.WENT_BACK], current=True)
                break
            except ConnectionLoss:
                attempts += 1
                await self._clock.sleep(Backoff().pause_s(attempts))
        life = None
        if node is not None:
            try:
                life = LifeNode.decode(node.data)
            except MalformedNodeError as error:
                self._log.error("the life of this broker cannot be read", path=self._path, reason=str(error))
        self.tree = None if tree is None else tree.data.decode("utf-8", errors="replace")
        if mark is not None:
            self._went_back.note()
        return _Seen(node, life, self.tree, mark is not None)

    async def _tell(self, store: Store, seen: _Seen) -> None:
        if seen.stands:
            return
        known = self._known
        await self._went_back.tell(
            store,
            f"the log directory of broker {self._broker} knows life {known.confirmed} of tree {known.tree or 'none'}, "
            f"the store {seen.life_id} of tree {seen.tree or 'none'}",
        )

    async def _renew(self, why: str, seen: _Seen) -> None:
        proof, log_id = self._storage.directory.proof, LogId(self._mint_id())
        self._log.error(
            "the log gets another id: what was recorded of it counts no more",
            reason=why,
            known=str(self._known.confirmed),
            found=str(seen.life_id),
            former=proof.identity.log_id,
        )
        await self._storage.write(lambda: proof.renew(log_id))

    async def _proposed(self, seen: _Seen, fit: Fit) -> Sequence[Operation]:
        known, found = self._known, seen.life_id
        life = Life(id=self._run, count=known.next_after(found))
        await self._note(known.proposing(life, found=found, tree=seen.tree, fits=fit.fits))
        self._pending = (life, seen.tree)
        data = LifeNode(life=life, directory=self._storage.directory.directory_id).encode()
        if seen.node is None:
            return (Create(self._path, data),)
        return (Set(self._path, data, seen.node.stat.version),)

    async def _note(self, lives: KnownLives) -> None:
        proof = self._storage.directory.proof
        await self._storage.write(lambda: proof.note_lives(lives))
