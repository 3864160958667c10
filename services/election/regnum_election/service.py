"""The election process as a whole: listeners for its life, one store session after another, campaigns within each."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import structlog
from regnum.admin.v1 import admin_pb2_grpc, events_pb2_grpc
from regnum.election.v1 import controller_pb2_grpc
from regnum.metadata.v1 import image_pb2_grpc
from regnum_coordination.errors import NodeExists, SessionExpired
from regnum_coordination.port import SessionState, Store
from regnum_coordination.recipes.folders import ensure_folders
from regnum_coordination.recipes.leadership import Leadership
from regnum_coordination.recipes.membership import Joined, Membership, TakenByAnotherError
from regnum_coordination.recipes.sessions import run_sessions
from regnum_model import paths
from regnum_model.ids import BrokerEpoch, BrokerId, ElectionId
from regnum_model.nodes import Address, ElectionNode, MalformedNodeError
from regnum_service import addressee
from regnum_service.access.acls.opening import AccessControl
from regnum_service.access.audit import AuditLog, NoAudit
from regnum_service.access.guards.guard import Guard
from regnum_service.access.tokens.settings import tokens_of
from regnum_service.advertised import claims_of
from regnum_service.cancellation import end_task
from regnum_service.clock import Clock
from regnum_service.connections import incarnations
from regnum_service.detection import HealthWatchDetector
from regnum_service.errors import StartRefusedError
from regnum_service.failpoints.announcing import announce
from regnum_service.failpoints.trigger import FailpointTrigger
from regnum_service.incarnation import Incarnations
from regnum_service.limits.answers import Answers
from regnum_service.limits.budget import OF_CONTROL, Budget
from regnum_service.limits.held_bytes import HeldBytes
from regnum_service.loop_lag import LoopLag
from regnum_service.machine import MACHINE, Machine
from regnum_service.muting import Muting, forget_departed
from regnum_service.poller import quiet_poller
from regnum_service.reading import UNREAD_BYTES_MAX, ReadTurns
from regnum_service.release import THIS, require_spoken
from regnum_service.server import CONTROL_BYTES_MAX, GrpcServer, ServiceRegistration
from regnum_service.settings import advertised
from regnum_service.store_session import OpenSession, ToldStore, open_told
from regnum_service.supervisor import Supervisor
from regnum_service.tls.settings import ProcessTls
from regnum_telemetry import tracing
from regnum_telemetry.metrics import Metrics

from regnum_election.admission.quota_channel import GrpcQuotaChannel
from regnum_election.auditing.servicer import AuditedServicer
from regnum_election.brokers.lifeline import Lifelines
from regnum_election.brokers.lifeline_thread import LifelineThread
from regnum_election.candidacy.candidacy import Candidacy, KnownController
from regnum_election.candidacy.reach import Isolation, Reach, ask_candidate
from regnum_election.candidacy.role import ControllerRole
from regnum_election.candidacy.whole_tree import WORDS, is_whole_now, proof_that_it_went_back, wait_whole
from regnum_election.controller import Controller
from regnum_election.decisions.cluster import Broker, Cluster
from regnum_election.dispatch.broker_channel import GrpcControlChannel
from regnum_election.dispatch.ports import ControlChannel
from regnum_election.failpoints.channel import FailpointChannel
from regnum_election.failpoints.lifeline import FailpointLifelines, failpoint_probe
from regnum_election.failpoints.store import FailpointStore
from regnum_election.health.gauges import show_controller, show_muting
from regnum_election.health.watch import Limits
from regnum_election.history.log import EventLog
from regnum_election.history.segments import folder_of
from regnum_election.publication.propagation_channel import GrpcPropagationChannel
from regnum_election.reign.ending import until_deposed
from regnum_election.reign.reign import DeposedError, Reign
from regnum_election.servicers.admin import AdminServicer
from regnum_election.servicers.controller import ControllerServicer
from regnum_election.servicers.envelope import EnvelopeOpener
from regnum_election.servicers.events import EventServicer
from regnum_election.servicers.image import ControllerImageServicer
from regnum_election.settings import ElectionSettings
from regnum_election.standby.channel import follow_events, follow_state
from regnum_election.standby.event_follower import EventFollower
from regnum_election.standby.follower import Follower
from regnum_election.state.tally import Tally
from regnum_election.tokens.calls import TokenCalls
from regnum_election.tokens.sweeping import TokenSweeper
from regnum_election.traces.change_trace import FIRST_ACKNOWLEDGEMENT_S

ADMIN_SERVICE: Final = "regnum.admin.v1.AdminService"
"""Served to clients, and to brokers that pass on what clients ask of them."""


class ElectionService:
    """One election process."""

    def __init__(
        self,
        settings: ElectionSettings,
        *,
        supervisor: Supervisor,
        clock: Clock,
        metrics: Metrics | None = None,
        audit: AuditLog | None = None,
        machine: Machine = MACHINE,
        open_session: OpenSession = open_told,
    ) -> None:
        """``metrics``: what the process shows; None: nobody asks. ``audit``: its audit log; None: there is none."""
        self._settings = settings
        self._metrics = metrics or Metrics()
        self._supervisor = supervisor
        self._clock = clock
        self._machine = machine
        self._id = ElectionId(settings.election_id)
        self._incarnations = Incarnations(settings.run_dir, f"election-{self._id}")
        self._role = ControllerRole()
        show_controller(self._metrics, lambda: self._role.reigning, clock)
        # What a reign counts is shown, at 0, before this process has one: its first change is seen to come.
        Tally(self._metrics)
        self._told_store = ToldStore(settings, metrics=self._metrics, open_session=open_session, clock=clock)
        self._contact = self._told_store.contact(lambda: self._store, clock, self._metrics)
        self._store: Store | None = None
        self._lag = LoopLag(clock, metrics=self._metrics)
        self._reach = Reach(probe=machine.connect, clock=clock, chance=machine.chance)
        self._tls = tls = ProcessTls.of(settings, metrics=self._metrics, opener_of=machine.opener)
        dial = tls.open_channel
        self._isolation = Isolation(
            id=self._id, reach=self._reach, ask=partial(ask_candidate, open_one=dial), clock=clock
        )
        self._follower = Follower(open_stream=partial(follow_state, open_one=dial), clock=clock)
        self._events = EventLog(clock, settings.event_limits, machine.daemon)
        self._events.show(self._metrics)
        self._event_follower = EventFollower(
            self._events, open_stream=partial(follow_events, open_one=dial), clock=clock
        )
        self._cluster: str | None = None
        """Id of the cluster whose events are written down."""
        self._listeners: dict[str, Address] = {}
        self._log = structlog.get_logger("election").bind(election_id=settings.election_id)
        failpoint = settings.failpoint_file
        self._failpoints = None if failpoint is None else FailpointTrigger(failpoint)
        self._muting = Muting(clock)
        self._access = access = AccessControl.of(settings, clock=clock, metrics=self._metrics, audit=audit)
        authorizer = access.authorizer
        self._tokens = tokens_of(settings, clock)
        servicer = AdminServicer(
            self._role,
            muting=self._muting,
            authorizer=authorizer,
            tokens=TokenCalls(
                self._tokens, lives=settings.token_lives, authorizer=authorizer, clock=clock, chance=machine.chance
            ),
        )
        show_muting(self._metrics, self._muting, lambda: servicer.held)
        # Direct calls and those in envelopes pass the same funnel.
        admin = AuditedServicer(servicer, audit or NoAudit())
        guarded = Guard(authorizer).before(ADMIN_SERVICE, admin)
        answers = Answers(Budget(HeldBytes(OF_CONTROL), clock))
        self._servers = (
            GrpcServer(
                Address.parse(settings.client_listen),
                [
                    ServiceRegistration(
                        name=ADMIN_SERVICE,
                        servicer=admin,
                        add_to_server=admin_pb2_grpc.add_AdminServiceServicer_to_server,
                    ),
                    ServiceRegistration(
                        name="regnum.admin.v1.EventService",
                        servicer=EventServicer(self._role.controller, self._events, clock),
                        add_to_server=events_pb2_grpc.add_EventServiceServicer_to_server,
                    ),
                    ServiceRegistration(
                        name="regnum.metadata.v1.ImageService",
                        servicer=ControllerImageServicer(self._role, clock),
                        add_to_server=image_pb2_grpc.add_ImageServiceServicer_to_server,
                    ),
                ],
                supervisor=supervisor,
                request_bytes_max=CONTROL_BYTES_MAX,
                gates=(self._muting, ReadTurns(held=answers.budget.held)),
                answers=answers,
                unread_bytes_max=UNREAD_BYTES_MAX,
                listener="client",
                metrics=self._metrics,
                access=self._tokens.taken_at(access.at(tls.client)),
                machine=machine,
            ),
            GrpcServer(
                Address.parse(settings.internal_listen),
                [
                    ServiceRegistration(
                        name="regnum.election.v1.ControllerService",
                        servicer=ControllerServicer(
                            self._role,
                            self._events,
                            reached_broker=self._reached_broker,
                            envelopes=EnvelopeOpener(self._role, guarded, authorizer),
                            authorizer=authorizer,
                            audit=audit,
                        ),
                        add_to_server=controller_pb2_grpc.add_ControllerServiceServicer_to_server,
                    )
                ],
                supervisor=supervisor,
                request_bytes_max=CONTROL_BYTES_MAX,
                listener="internal",
                metrics=self._metrics,
                access=access.at(tls.internal),
                own=addressee.election(self._id),
                machine=machine,
            ),
        )
        self._lifelines = LifelineThread(
            Address.parse(settings.lifeline_listen),
            clock=clock,
            supervisor=supervisor,
            main_lag=self._lag,
            session_connected=self._session_connected,
            session_timeout_s=settings.session_timeout_s,
            report=self._role.report,
            fences=settings.lifeline_detection,
            probe=machine.connect if self._failpoints is None else failpoint_probe(machine.connect, self._failpoints),
            served_as=self._lifelines_served,
            metrics=self._metrics,
            access=access.at(tls.internal),
            own=addressee.election(self._id),
            election_id=str(self._id),
            machine=machine,
        )

    async def start(self) -> None:
        """Listen and begin to campaign. Raises StartRefusedError."""
        announce(self._failpoints)
        quiet_poller(asyncio.get_running_loop())
        for server, listener in zip(self._servers, ("client", "internal"), strict=True):
            await server.start()
            self._supervisor.defer(f"{listener} listener", server.stop)
        lifeline = await self._lifelines.start()
        self._supervisor.defer("lifelines", self._lifelines.stop)
        client, internal = self._servers
        self._listeners = {
            "client": advertised(self._settings.client_advertised, client.address),
            "internal": advertised(self._settings.internal_advertised, internal.address),
            "lifeline": advertised(self._settings.lifeline_advertised, lifeline),
        }
        gone = forget_departed((self._muting,), partial(incarnations, client.address.port), self._clock)
        self._supervisor.start("muted-connections", gone)
        self._supervisor.start("loop-lag", self._lag.run())
        self._supervisor.start("store-contact", self._contact.run())
        self._tokens.start(self._supervisor)
        self._supervisor.start("token-sweep", TokenSweeper(self._role, self._tokens.table, self._clock).run())
        self._supervisor.start("follow-controller", self._follower.run())
        self._supervisor.start("follow-events", self._event_follower.run())
        self._supervisor.start("sessions", run_sessions(self._open_session, self._serve_session, self._clock))

    async def _open_session(self) -> Store:
        store = await self._told_store.open()
        return store if self._failpoints is None else FailpointStore(store, self._failpoints)

    def _open_channel(self, broker: Broker) -> ControlChannel:
        channel = GrpcControlChannel(broker.id, broker.internal, self._tls.open_channel)
        return channel if self._failpoints is None else FailpointChannel(channel, broker.id, self._failpoints)

    def _lifelines_served(self, lifelines: Lifelines) -> controller_pb2_grpc.LifelineServiceServicer:
        return lifelines if self._failpoints is None else FailpointLifelines(lifelines, self._failpoints)

    async def _serve_session(self, store: Store) -> None:
        self._store = store
        following = self._access.start_following(store, self._supervisor.start)
        try:
            await self._session(store)
        finally:
            following()
            await self._serve(serving=False)
            self._store = None

    async def _session(self, store: Store) -> None:
        await wait_whole(store)
        await require_spoken(store, self._clock)
        await ensure_folders(store, paths.PERSISTENT_FOLDERS, self._clock)
        cluster_id = await self._cluster_id(store)
        tracing.in_cluster(cluster_id)
        self._open_events(cluster_id)
        incarnation = str(self._machine.new_uuid())
        membership = self._membership(store, incarnation)
        try:
            joined = await membership.join()
        except TakenByAnotherError as error:
            raise StartRefusedError(str(error)) from error
        detects = self._settings.lifeline_detection
        hesitate = partial(self._reach.hesitate, store) if detects else None
        leadership = Leadership(store, self._clock, id=self._id, hesitate=hesitate)

        async def run_reign(reign: Reign) -> DeposedError:
            return await self._reign(store, reign, cluster_id)

        candidacy = Candidacy(
            id=self._id,
            store=store,
            leadership=leadership,
            detector=HealthWatchDetector(self._clock, self._machine.connect, self._tls.open_channel),
            run_reign=run_reign,
            known=self._heard_of,
            spawn=self._supervisor.start,
            detects=detects,
            prepare=partial(self._reach.prepare, store),
        )
        await self._serve(serving=True)
        following = self._supervisor.start("follow-tokens", self._tokens.follow(partial(_ready, store)))
        registration = self._supervisor.start("registration", self._stay_registered(membership, joined))
        try:
            await candidacy.run()
        finally:
            end_task(registration)
            end_task(following)

    def _heard_of(self, known: KnownController | None) -> None:
        self._role.heard_of(known)
        other = None if known is None or known.id == self._id else known.internal
        self._follower.heard_of(other)
        self._event_follower.heard_of(other)

    def _open_events(self, cluster_id: str) -> None:
        """Begin to write events down, those of this cluster, once it is known which it is."""
        if self._cluster is None:
            self._cluster = cluster_id
            run_dir = self._settings.run_dir
            self._events.open(None if run_dir is None else folder_of(run_dir, self._id, cluster_id))
            self._supervisor.defer("event log", self._events.close)

    async def _stay_registered(self, membership: Membership, joined: Joined) -> None:
        """A registration that somebody removed is made again: brokers and candidates find this process by it."""
        try:
            await membership.stay(joined)
        except SessionExpired:
            # The candidacy ends for the same reason and says so.
            return
        except TakenByAnotherError as error:
            raise StartRefusedError(str(error)) from error

    def _membership(self, store: Store, incarnation: str) -> Membership:
        previous = self._incarnations.previous() | {incarnation}
        self._incarnations.remember(incarnation)
        return Membership(
            store,
            self._clock,
            path=paths.election_id(self._id),
            encode=lambda _: ElectionNode(incarnation=incarnation, listeners=self._listeners, build=THIS).encode(),
            is_predecessor=lambda data: _incarnation_in(data) in previous,
            patience_s=self._settings.session_timeout_s + 2.0,
            claims=claims_of(paths.ELECTION_ADDRESSES, addressee.election(self._id), self._listeners),
        )

    async def _cluster_id(self, store: Store) -> str:
        while True:
            stat = await store.exists(paths.CLUSTER_ID, current=True)
            if stat is not None:
                return (await store.get(paths.CLUSTER_ID, current=True)).data.decode("utf-8", errors="replace")
            fresh = self._machine.new_id()
            try:
                await store.create(paths.CLUSTER_ID, fresh.encode(), make_parents=True)
            except NodeExists:
                continue

    async def _reign(self, store: Store, reign: Reign, cluster_id: str) -> DeposedError:
        # After the win: a restore that began between the look before the campaign and the win is seen here.
        if not await is_whole_now(store, self._clock):
            raise StartRefusedError(WORDS)
        proof = await proof_that_it_went_back(store, self._clock)
        reign = replace(
            reign,
            went_back=proof,
            access_warnings=self._tls.warnings,
            store_warnings=self._told_store.trust.warnings,
            tell_misdirected=partial(self._lifelines.tell_misdirected, reign.epoch),
            witnesses=self._lifelines,
            earlier=self._events.changes_before(reign.epoch, _unfinished_since_ms(reign)),
        )
        brokers: Mapping[BrokerId, Broker] = {}

        def picture_changed(picture: Cluster) -> None:
            nonlocal brokers
            brokers = picture.brokers
            self._lifelines.show(reign.epoch, brokers)

        if self._failpoints is not None:
            reign = replace(reign, before_deciding=partial(self._failpoints.reach, "decide"))
        controller = Controller(
            reign=reign,
            store=store,
            cluster_id=cluster_id,
            client_listener=self._listeners["client"],
            open_channel=self._open_channel,
            open_metadata=lambda one: GrpcPropagationChannel(one.id, one.internal, self._tls.open_channel),
            metadata_detector=HealthWatchDetector(self._clock, self._machine.connect, self._tls.open_channel)
            if self._settings.lifeline_detection
            else None,
            open_quota=lambda one: GrpcQuotaChannel(one.id, one.internal, self._tls.open_channel),
            quota_stand_in=self._settings.quota_stand_in,
            picture_changed=picture_changed,
            tell_in_sync=partial(self._lifelines.tell, reign.epoch),
            clock=self._clock,
            chance=self._machine.chance,
            spawn=self._supervisor.start,
            config_seeds=self._settings.config_seeds,
            balance_interval_s=self._settings.leader_balance_interval_s,
            moving_max=self._settings.moving_partitions_max,
            followed=await self._follower.take(),
            limits=Limits(order_s=self._settings.order_overdue_s, trouble_s=self._settings.trouble_overdue_s),
            metrics=self._metrics,
            record=self._events.append,
            logged_leaders=self._events.leaders_before,
        )
        self._role.hold(controller)
        self._lifelines.begin(reign.epoch, elected_at=BrokerEpoch(reign.elected_at))
        reigning = [asyncio.ensure_future(controller.run())]
        if self._settings.lifeline_detection:
            watching = self._isolation.watch(
                store,
                brokers=lambda: {id: broker.internal for id, broker in brokers.items()},
                silent_s=lambda: self._lifelines.silent_s,
            )
            reigning.append(asyncio.ensure_future(watching))
        try:
            return await until_deposed(reigning)
        finally:
            self._lifelines.end()
            self._role.leave()

    async def _reached_broker(self) -> BrokerId | None:
        store = self._store
        return await self._reach.for_others(store) if store is not None and self._session_connected() else None

    def _session_connected(self) -> bool:
        store = self._store
        return store is not None and store.session_state is SessionState.CONNECTED

    async def _serve(self, *, serving: bool) -> None:
        for server in self._servers:
            await server.set_serving(serving=serving)
        await self._lifelines.set_serving(serving=serving)


def _unfinished_since_ms(reign: Reign) -> int:
    """Changes of leadership that began later had not ended when the reign before did."""
    before = reign.predecessor
    ended_unix_nano = reign.won_unix_nano if before is None else before.noticed_unix_nano
    return round(ended_unix_nano / 1e6 - FIRST_ACKNOWLEDGEMENT_S * 1000)


async def _ready(store: Store) -> Store:
    """The session that there is."""
    return store


def _incarnation_in(data: bytes) -> str | None:
    try:
        return ElectionNode.decode(data).incarnation
    except MalformedNodeError:
        return None
