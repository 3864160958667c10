"""From candidate to controller and back, over and over, during one session with the store (seed 002, safety rule S7).

A standby does two things at once: it campaigns (and wins as soon as ``/controller`` is free), and it watches the
incumbent's lifeline listener. When that breaks and the port refuses twice, the incumbent is dead: the standby fences it
and need not wait for its session to end. Where that listener is, the incumbent's registration says, which is read until
it does: a standby that missed it would watch nobody for as long as that reign lasts. A process that opens a session and
finds itself named in ``/controller`` reigned in an earlier one and fences that reign: a store that was away gives old
sessions their whole time-out anew, and until there is a controller the brokers, who registered anew as well, lead
nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

import structlog
from regnum_coordination.errors import ConnectionLoss, NoNode, SessionExpired
from regnum_coordination.port import Store
from regnum_coordination.recipes.leadership import Incumbent, Leadership, Loss
from regnum_coordination.recipes.leadership import Reign as Win
from regnum_coordination.timing import Backoff
from regnum_model import paths
from regnum_model.ids import ControllerEpoch, ElectionId
from regnum_model.nodes import Address, ElectionNode, MalformedNodeError
from regnum_service.cancellation import end_task
from regnum_service.detection import Detector
from regnum_service.supervisor import Spawn
from regnum_telemetry import conventions, tracing

from regnum_election.reign.reign import DeposedError, Predecessor, Reign, ResignedError

STAND_ASIDE_S: Final = 2.0
"""How long a controller that was asked to resign leaves the office to others."""

_BACKOFF: Final = Backoff()
"""Pauses between looks for the incumbent's listeners."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownController:
    """Whom to send those who ask the wrong process."""

    id: ElectionId
    epoch: ControllerEpoch
    client: Address | None
    """Listener for clients; None when the process does not say."""
    internal: Address | None = None
    """Listener for brokers and standbys; None when the process does not say."""


RunReign = Callable[[Reign], Awaitable[DeposedError]]
"""Reigns until deposed; returns why."""


class Candidacy:
    """One session's campaigns and reigns."""

    def __init__(
        self,
        *,
        id: ElectionId,
        store: Store,
        leadership: Leadership,
        detector: Detector,
        run_reign: RunReign,
        known: Callable[[KnownController | None], None],
        spawn: Spawn,
        detects: bool,
        prepare: Callable[[], Awaitable[object]],
    ) -> None:
        """Only assigns.

        Args:
            id: the election process.
            store: an open session.
            leadership: its campaigns.
            detector: proves the incumbent dead.
            run_reign: called with each win.
            known: told of each incumbent; None when there is none.
            spawn: starts what goes on beside.
            detects: whether a dead incumbent is fenced (safety rule S9).
            prepare: awaited before that, so that a campaign in the gap need not look for brokers first.
        """
        self._id = id
        self._store = store
        self._leadership = leadership
        self._detector = detector
        self._run_reign = run_reign
        self._known = known
        self._spawn = spawn
        self._detects = detects
        self._prepare = prepare
        self._log = structlog.get_logger("candidacy").bind(election_id=id)
        self._incumbent: Incumbent | None = None
        """Who reigned last as far as this process knows; for traces."""
        self._predecessor: Predecessor | None = None
        """How its end was seen."""
        self._looked = False
        """Whether this session has seen ``/controller``."""

    async def run(self) -> None:
        """Campaign and reign until the session is over; raises SessionExpired."""
        while True:
            self._log.info("campaigning")
            win = await self._campaign()
            await self._reign(win)

    async def _campaign(self) -> Win:
        # Supervised: a standby that has ceased to look, for whatever reason, would find out at the next failure.
        observer = self._spawn("observe-incumbent", self._observe())
        try:
            return await self._leadership.campaign()
        finally:
            end_task(observer)
            await asyncio.wait([observer])

    async def _observe(self) -> None:
        """Know the incumbent, and fence it when it is dead."""
        following: asyncio.Task[None] | None = None
        try:
            async with aclosing(self._leadership.incumbents()) as incumbents:
                async for incumbent in incumbents:
                    if following is not None:
                        end_task(following)
                        following = None
                    self._note(incumbent)
                    await self._fence_own(incumbent)
                    if incumbent is None:
                        self._known(None)
                    else:
                        following = self._spawn("follow-controller", self._follow(incumbent))
        except SessionExpired:
            # The campaign ends for the same reason and says so.
            return
        finally:
            if following is not None:
                end_task(following)

    async def _fence_own(self, incumbent: Incumbent | None) -> None:
        """End the reign of an earlier session of this process, or of its last run.

        At the first look only: this process's registration stands, so that nobody else has its id. Should a person
        delete the registration and start a second one, the two do not depose one another for ever.
        """
        first, self._looked = not self._looked, True
        if incumbent is None or incumbent.id != self._id or incumbent.session_id == self._store.session_id:
            return
        if first:
            self._log.warning("fencing the reign of an earlier session", epoch=incumbent.epoch)
            await self._leadership.fence(incumbent.epoch_version)

    def _note(self, incumbent: Incumbent | None) -> None:
        """Whose reign it is now; if one ended without having been detected, its node told."""
        last, self._incumbent = self._incumbent, incumbent
        if incumbent is not None:
            self._predecessor = None
        elif last is not None and last.id != self._id and self._predecessor is None:
            now_unix_nano = tracing.now_unix_nano()
            self._predecessor = Predecessor(
                id=last.id,
                cause=conventions.CAUSE_NODE,
                noticed_unix_nano=now_unix_nano,
                detected_unix_nano=now_unix_nano,
                fenced_unix_nano=now_unix_nano,
            )

    async def _follow(self, incumbent: Incumbent) -> None:
        """Tell of the incumbent, and fence it when it is dead."""
        try:
            lifeline = await self._introduce(incumbent)
        except SessionExpired:
            return
        if self._detects and incumbent.id != self._id:
            await self._detect(incumbent, lifeline)

    async def _introduce(self, incumbent: Incumbent) -> Address:
        """Tell of the incumbent, and where it listens as soon as that can be read; its lifeline listener."""
        attempts = 0
        while True:
            try:
                node = await self._store.get(paths.election_id(incumbent.id), current=True)
                listeners = ElectionNode.decode(node.data).listeners
            except (NoNode, ConnectionLoss, MalformedNodeError) as error:
                attempts += 1
                if attempts == 1:
                    self._log.warning("controller's addresses unknown", controller=incumbent.id, reason=str(error))
                    self._known(KnownController(id=incumbent.id, epoch=incumbent.epoch, client=None))
                await asyncio.sleep(_BACKOFF.pause_s(attempts))
                continue
            client, internal = listeners["client"], listeners["internal"]
            self._known(KnownController(id=incumbent.id, epoch=incumbent.epoch, client=client, internal=internal))
            return listeners["lifeline"]

    async def _detect(self, incumbent: Incumbent, lifeline: Address) -> None:
        noticed_unix_nano = await self._wait_dead(lifeline)
        now_unix_nano = tracing.now_unix_nano()
        self._predecessor = Predecessor(
            id=incumbent.id,
            cause=conventions.CAUSE_LIFELINE,
            noticed_unix_nano=noticed_unix_nano,
            detected_unix_nano=now_unix_nano,
            fenced_unix_nano=now_unix_nano,
        )
        self._log.warning("controller is dead, fencing it", controller=incumbent.id, epoch=incumbent.epoch)
        try:
            await self._prepare()
            await self._leadership.fence(incumbent.epoch_version)
            self._predecessor = replace(self._predecessor, fenced_unix_nano=tracing.now_unix_nano())
        except SessionExpired:
            return

    async def _wait_dead(self, lifeline: Address) -> int:
        while True:
            try:
                return await self._detector.wait_dead(lifeline)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                # Not this task is cancelled but a call in it: there is still somebody to watch.
                self._log.warning("the watch on the controller was cancelled by nobody; watching on")
                await asyncio.sleep(0)

    async def _reign(self, win: Win) -> None:
        self._note(None)
        reign = Reign(
            controller_id=self._id,
            epoch=win.epoch,
            epoch_version=win.epoch_version,
            elected_at=win.creation_id,
            predecessor=self._predecessor,
            won_unix_nano=tracing.now_unix_nano(),
        )
        self._predecessor = None
        self._log.info("elected", epoch=reign.epoch)
        holding = asyncio.create_task(self._leadership.hold(win), name="hold-controller")
        reigning = asyncio.ensure_future(self._run_reign(reign))
        try:
            await asyncio.wait({holding, reigning}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reigning, holding):
                if not task.done():
                    task.cancel()
            ends = await asyncio.gather(reigning, holding, return_exceptions=True)
        self._known(None)
        await self._after(win, *ends)

    async def _after(self, win: Win, deposed: "DeposedError | BaseException", loss: "Loss | BaseException") -> None:
        for end in (deposed, loss):
            if isinstance(end, BaseException) and not isinstance(end, asyncio.CancelledError | DeposedError):
                raise end
        if isinstance(deposed, DeposedError):
            self._log.warning("deposed", epoch=win.epoch, reason=str(deposed))
            if deposed.seen is not None:
                self._leadership.saw_epoch(deposed.seen)
        if isinstance(loss, Loss):
            self._log.warning("reign lost", epoch=win.epoch, reason=loss.value)
            if loss is Loss.SESSION:
                raise SessionExpired("the session ended with the reign")
        if isinstance(deposed, asyncio.CancelledError) and isinstance(loss, asyncio.CancelledError):
            self._log.error("reign ended", epoch=win.epoch, reason="a task of it was cancelled from outside")
        await self._leadership.resign(win)
        if isinstance(deposed, ResignedError):
            await self._stand_aside()

    async def _stand_aside(self) -> None:
        """Let another candidate go first; whoever is alone reigns again. Raises SessionExpired."""
        try:
            async with asyncio.timeout(STAND_ASIDE_S), aclosing(self._leadership.incumbents()) as incumbents:
                async for incumbent in incumbents:
                    if incumbent is not None:
                        return
        except TimeoutError:
            self._log.info("nobody else took over", waited_s=STAND_ASIDE_S)
