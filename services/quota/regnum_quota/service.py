"""The quota process as a whole: a listener for its life, one store session after another, a candidacy in each.

A session has one incarnation, one registration and at most one term. A seat that is lost while the session lasts ends
the session too: so everything that a term has counted goes with it, and the next begins with a name of its own.
"""

import asyncio
from typing import Final

import structlog
from regnum.quota.v1 import quota_pb2_grpc
from regnum_coordination.errors import SessionExpired
from regnum_coordination.port import Store
from regnum_coordination.recipes.folders import ensure_folders
from regnum_coordination.recipes.membership import Joined, Membership, TakenByAnotherError
from regnum_coordination.recipes.sessions import run_sessions
from regnum_model import paths, quotas
from regnum_model.nodes import Address, MalformedNodeError
from regnum_model.quotas import QuotaProcessNode
from regnum_service import addressee
from regnum_service.access.acls.opening import AccessControl
from regnum_service.access.audit import AuditLog
from regnum_service.advertised import claims_of
from regnum_service.cancellation import end_task
from regnum_service.clock import Clock
from regnum_service.detection import HealthWatchDetector
from regnum_service.errors import StartRefusedError
from regnum_service.incarnation import Incarnations
from regnum_service.loop_lag import LoopLag
from regnum_service.machine import MACHINE, Machine
from regnum_service.poller import quiet_poller
from regnum_service.release import THIS, require_spoken
from regnum_service.server import CONTROL_BYTES_MAX, GrpcServer, ServiceRegistration
from regnum_service.settings import advertised
from regnum_service.store_session import OpenSession, ToldStore, open_told
from regnum_service.supervisor import Supervisor
from regnum_service.tls.settings import ProcessTls
from regnum_service.traces import name_cluster
from regnum_telemetry.metrics import Metrics

from regnum_quota.candidacy import Candidacy, Seat
from regnum_quota.gauges import show_quotas
from regnum_quota.office import Office
from regnum_quota.servicer import QuotaServicer
from regnum_quota.settings import QuotaSettings
from regnum_quota.term import Term

REOPEN_INTERVAL_S: Final = 0.5
"""Pause before the store is tried again, and before a process that lost its node registers again."""


class QuotaService:
    """One quota process. Healthy as soon as it is registered: whoever stands by serves its purpose."""

    def __init__(
        self,
        settings: QuotaSettings,
        *,
        supervisor: Supervisor,
        clock: Clock,
        metrics: Metrics | None = None,
        audit: AuditLog | None = None,
        machine: Machine = MACHINE,
        open_session: OpenSession = open_told,
    ) -> None:
        """``metrics``: what the process shows; None: nobody asks. ``audit``: where denials are written down."""
        self._settings = settings
        self._metrics = metrics or Metrics()
        self._supervisor = supervisor
        self._clock = clock
        self._machine = machine
        self._open_session = open_session
        self._id = settings.quota_id
        self._incarnations = Incarnations(settings.run_dir, f"quota-{self._id}")
        self._office = Office()
        self._log = structlog.get_logger("quota").bind(quota_id=self._id)
        show_quotas(self._metrics, self._office, clock, entities_max=settings.metrics_entities_max)
        self._tls: Final = ProcessTls.of(settings, metrics=self._metrics, opener_of=machine.opener)
        self._access: Final = AccessControl.of(settings, clock=clock, metrics=self._metrics, audit=audit)
        self._internal = GrpcServer(
            Address.parse(settings.internal_listen),
            [
                ServiceRegistration(
                    name="regnum.quota.v1.QuotaService",
                    servicer=QuotaServicer(self._office, clock, self._metrics),
                    add_to_server=quota_pb2_grpc.add_QuotaServiceServicer_to_server,
                )
            ],
            supervisor=supervisor,
            request_bytes_max=CONTROL_BYTES_MAX,
            listener="internal",
            own=addressee.quota(settings.quota_id),
            metrics=self._metrics,
            access=self._access.at(self._tls.internal),
            machine=machine,
        )

    async def start(self) -> None:
        """Listen, register and campaign. Raises StartRefusedError."""
        quiet_poller(asyncio.get_running_loop())
        await self._internal.start()
        self._supervisor.defer("internal listener", self._internal.stop)
        self._supervisor.start("loop-lag", LoopLag(self._clock, metrics=self._metrics).run())
        told_store = ToldStore(
            self._settings, metrics=self._metrics, open_session=self._open_session, clock=self._clock
        )
        self._supervisor.start("sessions", run_sessions(told_store.open, self._serve_session, self._clock))

    async def _serve_session(self, store: Store) -> None:
        following = self._access.start_following(store, self._supervisor.start)
        try:
            await self._session(store)
        finally:
            following()
            await self._internal.set_serving(serving=False)

    async def _session(self, store: Store) -> None:
        """Register, stand by, decide; returns when the seat is lost and raises when the session is."""
        await require_spoken(store, self._clock)
        await ensure_folders(store, quotas.FOLDERS, self._clock)
        me = QuotaProcessNode(
            id=self._id,
            incarnation=str(self._machine.new_uuid()),
            internal=advertised(self._settings.internal_advertised, self._internal.address),
            build=THIS,
        )
        previous = self._incarnations.previous()
        self._incarnations.remember(me.incarnation)
        membership = Membership(
            store,
            self._clock,
            path=quotas.quota_id_path(self._id),
            encode=lambda _: me.encode(),
            is_predecessor=lambda data: _incarnation_in(data) in previous | {me.incarnation},
            patience_s=self._settings.session_timeout_s + 2.0,
            claims=claims_of(paths.QUOTA_ADDRESSES, addressee.quota(self._id), {"internal": me.internal}),
        )
        registration = self._supervisor.start(
            "registration", self._stay_registered(membership, await _join(membership))
        )
        candidacy = Candidacy(
            store,
            self._clock,
            me=me,
            previous=previous,
            detector=HealthWatchDetector(self._clock, self._machine.connect, self._tls.open_channel)
            if self._settings.lifeline_detection
            else None,
            known=self._office.heard_of,
            spawn=self._supervisor.start,
            exempt=self._settings.exempt,
        )
        naming = self._supervisor.start("name-cluster", name_cluster(store, self._clock))
        try:
            await self._internal.set_serving(serving=True)
            self._log.info("standing by", incarnation=me.incarnation)
            seat = await candidacy.campaign()
            loss = await self._decide(
                candidacy, seat, Term(store, self._clock, incarnation=me.incarnation, exempt=self._settings.exempt)
            )
        finally:
            self._office.heard_of(None)
            end_task(registration)
            end_task(naming)
        self._log.warning("no longer active, opening another session", reason=loss)
        await self._clock.sleep(REOPEN_INTERVAL_S)

    async def _decide(self, candidacy: Candidacy, seat: Seat, term: Term) -> str:
        """Be the active process until the seat is lost; why it was. Raises SessionExpired."""
        self._office.begin(term)
        holding = asyncio.create_task(candidacy.hold(seat), name="hold-seat")
        running = asyncio.create_task(term.run(), name="term")
        try:
            await asyncio.wait({holding, running}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._office.end()
            for task in (holding, running):
                task.cancel()
            await asyncio.gather(holding, running, return_exceptions=True)
        if running.done() and not running.cancelled():
            running.result()
        return holding.result()

    async def _stay_registered(self, membership: Membership, joined: Joined) -> None:
        """A registration that somebody removed is made again, as long as the session lasts."""
        try:
            await membership.stay(joined)
        except SessionExpired:
            # The candidacy ends for the same reason and says so.
            return
        except TakenByAnotherError as error:
            raise StartRefusedError(str(error)) from error


async def _join(membership: Membership) -> Joined:
    try:
        return await membership.join()
    except TakenByAnotherError as error:
        raise StartRefusedError(str(error)) from error


def _incarnation_in(data: bytes) -> str | None:
    try:
        return QuotaProcessNode.decode(data).incarnation
    except MalformedNodeError:
        return None
