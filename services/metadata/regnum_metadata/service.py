"""The metadata process as a whole: listeners for its life, one store session after another, a registration in each."""

import asyncio
from contextlib import aclosing
from functools import partial
from typing import Final

import structlog
from regnum.metadata.v1 import image_pb2_grpc, metadata_pb2_grpc
from regnum.propagation.v1 import propagation_pb2_grpc
from regnum_coordination.errors import SessionExpired
from regnum_coordination.port import Store
from regnum_coordination.recipes.believed_epochs import BelievedEpochs
from regnum_coordination.recipes.folders import ensure_folders
from regnum_coordination.recipes.membership import Membership, TakenByAnotherError
from regnum_coordination.recipes.sessions import run_sessions
from regnum_model import paths
from regnum_model.ids import MetadataId
from regnum_model.nodes import Address, MalformedNodeError, MetadataNode
from regnum_service import addressee
from regnum_service.access.acls.opening import AccessControl
from regnum_service.access.audit import AuditLog
from regnum_service.access.tokens.settings import tokens_of
from regnum_service.advertised import claims_of
from regnum_service.cancellation import end_task
from regnum_service.clock import Clock
from regnum_service.cluster_image.describing import ImageServicer
from regnum_service.errors import StartRefusedError
from regnum_service.incarnation import Incarnations
from regnum_service.limits.answers import Answers
from regnum_service.limits.budget import OF_CONTROL, Budget
from regnum_service.limits.held_bytes import HeldBytes
from regnum_service.loop_lag import LoopLag
from regnum_service.machine import MACHINE, Machine
from regnum_service.reading import UNREAD_BYTES_MAX, ReadTurns
from regnum_service.release import THIS, require_spoken
from regnum_service.server import CONTROL_BYTES_MAX, GrpcServer, ServiceRegistration
from regnum_service.settings import advertised
from regnum_service.store_session import OpenSession, ToldStore, open_told
from regnum_service.supervisor import Supervisor
from regnum_service.tls.settings import ProcessTls
from regnum_service.traces import name_cluster
from regnum_telemetry.metrics import Metrics

from regnum_metadata.broker_stream import GrpcBrokerStream
from regnum_metadata.gauges import show_propagation
from regnum_metadata.propagation import Propagation
from regnum_metadata.servicers.metadata import MetadataServicer
from regnum_metadata.servicers.propagation import PropagationServicer
from regnum_metadata.settings import MetadataSettings

REOPEN_INTERVAL_S: Final = 0.5
"""Pause before the store is tried again, and before a process that was declared dead registers again."""


class MetadataService:
    """One metadata process. Healthy as soon as it has an image; what it has it keeps, whatever becomes of the store."""

    def __init__(
        self,
        settings: MetadataSettings,
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
        self._id = MetadataId(settings.metadata_id)
        self._incarnations = Incarnations(settings.run_dir, f"metadata-{self._id}")
        self._listeners: dict[str, Address] = {}
        self._has_image = asyncio.Event()
        self._store: Store | None = None
        self._log = structlog.get_logger("metadata").bind(metadata_id=settings.metadata_id)
        epochs = BelievedEpochs(lambda: self._store, clock)
        tls = ProcessTls.of(settings, metrics=self._metrics, opener_of=machine.opener)
        self._tokens: Final = tokens_of(settings, clock)
        self._access = access = AccessControl.of(settings, clock=clock, metrics=self._metrics, audit=audit)
        self._propagation = Propagation(
            id=self._id,
            open_stream=partial(GrpcBrokerStream, open_one=tls.open_channel),
            clock=clock,
            spawn=supervisor.start,
            believes=epochs.believes,
            shows=epochs.shows,
            first_image=self._has_image.set,
            shares=settings.shared_payloads,
        )
        show_propagation(self._metrics, self._propagation)
        budget = Budget(HeldBytes(OF_CONTROL), clock)
        self._client = GrpcServer(
            Address.parse(settings.client_listen),
            [
                ServiceRegistration(
                    name="regnum.metadata.v1.MetadataService",
                    servicer=MetadataServicer(
                        lambda: self._propagation.image,
                        self._propagation.names,
                        self._propagation.feed,
                        access.authorizer,
                    ),
                    add_to_server=metadata_pb2_grpc.add_MetadataServiceServicer_to_server,
                ),
                ServiceRegistration(
                    name="regnum.metadata.v1.ImageService",
                    servicer=ImageServicer(lambda: self._propagation.held, self._propagation.digest, clock),
                    add_to_server=image_pb2_grpc.add_ImageServiceServicer_to_server,
                ),
            ],
            supervisor=supervisor,
            request_bytes_max=CONTROL_BYTES_MAX,
            gates=(ReadTurns(held=budget.held),),
            answers=Answers(budget),
            unread_bytes_max=UNREAD_BYTES_MAX,
            listener="client",
            metrics=self._metrics,
            access=self._tokens.taken_at(access.at(tls.client)),
            machine=machine,
        )
        self._internal = GrpcServer(
            Address.parse(settings.internal_listen),
            [
                ServiceRegistration(
                    name="regnum.propagation.v1.PropagationService",
                    servicer=PropagationServicer(self._propagation),
                    add_to_server=propagation_pb2_grpc.add_PropagationServiceServicer_to_server,
                )
            ],
            supervisor=supervisor,
            request_bytes_max=CONTROL_BYTES_MAX,
            listener="internal",
            own=addressee.metadata(settings.metadata_id),
            metrics=self._metrics,
            access=access.at(tls.internal),
            machine=machine,
        )

    async def start(self) -> None:
        """Listen and register. Raises StartRefusedError."""
        await self._client.start()
        self._supervisor.defer("client listener", self._client.stop)
        await self._internal.start()
        self._supervisor.defer("internal listener", self._internal.stop)
        told = self._settings
        self._listeners = {
            "client": advertised(told.client_advertised, self._client.address),
            "internal": advertised(told.internal_advertised, self._internal.address),
        }
        self._supervisor.start("loop-lag", LoopLag(self._clock, metrics=self._metrics).run())
        self._supervisor.start("metadata-feed", self._propagation.feed.run())
        self._tokens.start(self._supervisor)
        self._supervisor.start("health", self._tell_health())
        told_store = ToldStore(
            self._settings, metrics=self._metrics, open_session=self._open_session, clock=self._clock
        )
        self._supervisor.start("sessions", run_sessions(told_store.open, self._session, self._clock))

    async def _tell_health(self) -> None:
        await self._has_image.wait()
        for server in (self._client, self._internal):
            await server.set_serving(serving=True)

    async def _session(self, store: Store) -> None:
        """Register, and see who else is there; ends by raising."""
        self._store = store
        await require_spoken(store, self._clock)
        await ensure_folders(store, (paths.METADATA_IDS,), self._clock)
        incarnation = str(self._machine.new_uuid())
        previous = self._incarnations.previous() | {incarnation}
        self._incarnations.remember(incarnation)
        membership = Membership(
            store,
            self._clock,
            path=paths.metadata_id(self._id),
            encode=lambda _: MetadataNode(incarnation=incarnation, listeners=self._listeners, build=THIS).encode(),
            is_predecessor=lambda data: _incarnation_in(data) in previous,
            patience_s=self._settings.session_timeout_s + 2.0,
            claims=claims_of(paths.METADATA_ADDRESSES, addressee.metadata(self._id), self._listeners),
        )
        peers = self._supervisor.start("peers", self._watch_peers(store))
        following = self._access.start_following(store, self._supervisor.start)
        tokens = self._supervisor.start("follow-tokens", self._tokens.follow(partial(_ready, store)))
        naming = self._supervisor.start("name-cluster", name_cluster(store, self._clock))
        try:
            while True:
                try:
                    joined = await membership.join()
                except TakenByAnotherError as error:
                    raise StartRefusedError(str(error)) from error
                self._log.info("registered", creation_id=joined.creation_id)
                await membership.wait_gone(joined)
                self._log.warning("registration removed, registering again")
                await self._clock.sleep(REOPEN_INTERVAL_S)
        finally:
            end_task(peers)
            end_task(tokens)
            end_task(naming)
            following()
            # No part of the cluster any more: what it would go on showing by rules of its time, others show by theirs.
            self._access.surrendered()

    async def _watch_peers(self, store: Store) -> None:
        try:
            async with aclosing(store.watch_children(paths.METADATA_IDS)) as changes:
                async for children in changes:
                    await self._propagation.processes_are(
                        frozenset(MetadataId(id) for id in map(paths.id_named, children.names) if id is not None)
                    )
        except SessionExpired:
            # The list stays as it was until the next session: a broker served twice is better than one not served.
            return


async def _ready(store: Store) -> Store:
    """The session that there is."""
    return store


def _incarnation_in(data: bytes) -> str | None:
    try:
        return MetadataNode.decode(data).incarnation
    except MalformedNodeError:
        return None
