"""The two listeners of a broker: clients come in by one, the controller and other brokers by the other."""

from dataclasses import dataclass
from typing import Self

from regnum.broker.v1 import group_pb2_grpc, log_pb2_grpc, producer_pb2_grpc
from regnum.metadata.v1 import image_pb2_grpc, metadata_pb2_grpc
from regnum.replication.v1 import control_pb2_grpc, replication_pb2_grpc
from regnum_model.nodes import Address
from regnum_service import addressee
from regnum_service.cluster_image.describing import ImageServicer
from regnum_service.server import GrpcServer, ServiceRegistration
from regnum_service.settings import advertised
from regnum_telemetry.instruments import broker as instruments

from regnum_broker.cluster.controller import ControllerCalls
from regnum_broker.cluster.orders.orders import Orders
from regnum_broker.composition.parts import BrokerParts
from regnum_broker.failpoints.serving import FailpointInterceptor, FailpointMetadata, FailpointSession
from regnum_broker.forwarding.forwarder import Forwarder
from regnum_broker.forwarding.old_path import OldPath
from regnum_broker.replication.fetchers import Fetchers
from regnum_broker.replication.isr_writer import IsrWriter
from regnum_broker.replication.sessions.fetch_session import FetchSession
from regnum_broker.replication.sessions.follower_streams import FollowerStreams
from regnum_broker.retention.mover import StartMover
from regnum_broker.servicers.admin import ForwardingServicer
from regnum_broker.servicers.control import ReplicaControlServicer
from regnum_broker.servicers.group import GroupServicer
from regnum_broker.servicers.log import LogServicer
from regnum_broker.servicers.metadata import MetadataServicer
from regnum_broker.servicers.producer import ProducerServicer
from regnum_broker.servicers.replica_logs import ReplicaLogs
from regnum_broker.servicers.replication import ReplicationServicer, Session
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.delete_records import DeleteRecordsHandler
from regnum_broker.serving.fetching.handler import FetchHandler
from regnum_broker.serving.fetching.nearby import NearbyReplicas
from regnum_broker.serving.fetching.offsets import OffsetsHandler
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_broker.serving.produce import ProduceHandler
from regnum_broker.serving.producer_ids import ProducerIds
from regnum_broker.serving.replica_descriptions import ReplicaDescriber
from regnum_broker.serving.topic_traffic import TopicTraffic
from regnum_broker.settings import BrokerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Where a broker listens."""

    client: Address
    internal: Address
    kafka: Address | None = None
    """None: it has none."""

    @classmethod
    def told(cls, settings: BrokerSettings) -> Self:
        """As the settings name them."""
        told = settings.kafka_listen
        return cls(
            client=Address.parse(settings.client_listen),
            internal=Address.parse(settings.internal_listen),
            kafka=None if told is None else Address.parse(told),
        )

    def advertised(self, settings: BrokerSettings) -> dict[str, Address]:
        """What the registration tells others to connect to."""
        listeners = {
            "client": advertised(settings.client_advertised, self.client),
            "internal": advertised(settings.internal_advertised, self.internal),
        }
        if self.kafka is not None:
            listeners["kafka"] = advertised(settings.kafka_advertised, self.kafka)
        return listeners


def internal_server(
    listeners: Listeners,
    parts: BrokerParts,
    *,
    orders: Orders,
    cache: MetadataCache,
    streams: FollowerStreams,
    writer: IsrWriter,
) -> GrpcServer:
    """What the controller orders here, and what other brokers copy from here.

    Args:
        listeners: where it listens.
        parts: of this broker.
        orders: what carries out the controller's.
        cache: where metadata is pushed to.
        streams: those of followers that are open.
        writer: told of each follower that has caught up.
    """
    replicas, storage, failpoints = parts.replicas, parts.storage, parts.failpoints

    def make_session() -> Session:
        session = FetchSession(
            find=replicas.get,
            arrivals=replicas.arrivals,
            streams=streams,
            caught_up=writer.wake,
            storage=storage,
            clock=parts.clock,
            throttle=parts.throttle.sending,
            fresh=parts.fresh,
            sent_bytes=parts.metrics.counter(instruments.REPLICATION_BYTES_OUT),
        )
        return session if failpoints is None else FailpointSession(session, failpoints, replicas.get)

    services = (
        ServiceRegistration(
            name="regnum.replication.v1.ReplicaControlService",
            servicer=ReplicaControlServicer(
                fence=parts.fence,
                orders=orders,
                replicas=replicas,
                logs=ReplicaLogs(replicas, storage),
                cache=cache if failpoints is None else FailpointMetadata(cache, failpoints),
                configs=parts.configs,
                went_back=parts.went_back,
            ),
            add_to_server=control_pb2_grpc.add_ReplicaControlServiceServicer_to_server,
        ),
        ServiceRegistration(
            name="regnum.replication.v1.ReplicationService",
            servicer=ReplicationServicer(make_session=make_session, replicas=replicas, held=parts.limits.held),
            add_to_server=replication_pb2_grpc.add_ReplicationServiceServicer_to_server,
        ),
    )
    return GrpcServer(
        listeners.internal,
        services,
        supervisor=parts.supervisor,
        listener="internal",
        own=addressee.broker(parts.id),
        metrics=parts.metrics,
        access=parts.access.at(parts.tls.internal),
        outermost=() if failpoints is None else (FailpointInterceptor(failpoints),),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientServices:
    """What clients are served, by whichever listener they come."""

    log: LogServicer
    producers: ProducerServicer
    groups: GroupServicer
    forwarding: ForwardingServicer
    cache: MetadataCache
    """What is known of the cluster."""
    leaders: CurrentLeaders
    """Who leads what, as far as this broker may say."""


def client_services(
    parts: BrokerParts,
    *,
    producing: ProduceHandler,
    fetching: FetchHandler,
    groups: GroupServicer,
    leaders: CurrentLeaders,
    mover: StartMover,
    calls: ControllerCalls,
    cache: MetadataCache,
    forwarder: Forwarder,
) -> ClientServices:
    """Put them together.

    Args:
        parts: of this broker.
        producing: takes records.
        fetching: gives records.
        groups: serves calls about consumer groups.
        leaders: who leads what, as far as this broker may say.
        mover: has logs begin later.
        calls: to the controller.
        cache: what is known of the cluster.
        forwarder: passes on what only the controller does.
    """
    replicas, storage, limits = parts.replicas, parts.storage, parts.limits
    return ClientServices(
        log=LogServicer(
            producing=producing,
            fetching=fetching,
            offsets=OffsetsHandler(replicas=replicas, leaders=leaders, storage=storage),
            describing=ReplicaDescriber(replicas=replicas, storage=storage),
            deleting=DeleteRecordsHandler(replicas=replicas, leaders=leaders, mover=mover),
            budget=limits.budget,
            throttling=limits.throttling,
        ),
        producers=ProducerServicer(ProducerIds(broker=parts.id, fence=parts.fence, calls=calls)),
        groups=groups,
        forwarding=ForwardingServicer(
            forwarder=forwarder,
            controller=lambda: cache.controller,
            throttling=limits.throttling,
            old_path=OldPath(
                protocol=lambda: parts.configs.stored.protocol,
                store=lambda: parts.sessions.store,
                clock=parts.clock,
                authorizer=parts.access.authorizer,
                audit=parts.audit,
            ),
        ),
        cache=cache,
        leaders=leaders,
    )


def client_server(
    listeners: Listeners, parts: BrokerParts, served: ClientServices, *, figures: ServiceRegistration
) -> GrpcServer:
    """What clients are served by gRPC. What they take is bounded before it is read; nobody else comes in here.

    Args:
        listeners: where it listens.
        parts: of this broker.
        served: to clients.
        figures: what the broker shows of itself.
    """
    limits, settings, cache, leaders = parts.limits, parts.settings, served.cache, served.leaders
    services = (
        ServiceRegistration(
            name="regnum.broker.v1.LogService",
            servicer=served.log,
            add_to_server=log_pb2_grpc.add_LogServiceServicer_to_server,
        ),
        ServiceRegistration(
            name="regnum.broker.v1.ProducerService",
            servicer=served.producers,
            add_to_server=producer_pb2_grpc.add_ProducerServiceServicer_to_server,
        ),
        ServiceRegistration(
            name="regnum.broker.v1.GroupService",
            servicer=served.groups,
            add_to_server=group_pb2_grpc.add_GroupServiceServicer_to_server,
        ),
        ServiceRegistration(
            name="regnum.metadata.v1.MetadataService",
            servicer=MetadataServicer(cache, leaders, parts.access.authorizer),
            add_to_server=metadata_pb2_grpc.add_MetadataServiceServicer_to_server,
        ),
        ServiceRegistration(
            name="regnum.metadata.v1.ImageService",
            servicer=ImageServicer(lambda: cache.held, cache.digest, parts.clock),
            add_to_server=image_pb2_grpc.add_ImageServiceServicer_to_server,
        ),
        served.forwarding.registration(),
        figures,
    )
    return GrpcServer(
        listeners.client,
        services,
        supervisor=parts.supervisor,
        listener="client",
        metrics=parts.metrics,
        request_bytes_max=settings.socket_request_max_bytes,
        gates=limits.gates,
        meter=limits.throttling,
        answers=limits.answers,
        unread_bytes_max=settings.socket_receive_buffer_bytes,
        access=parts.tokens.taken_at(parts.access.at(parts.tls.client)),
    )


def produce_handler(parts: BrokerParts, leaders: CurrentLeaders, traffic: TopicTraffic) -> ProduceHandler:
    """What takes records of clients, and what groups are recorded by."""
    return ProduceHandler(
        replicas=parts.replicas,
        leaders=leaders,
        storage=parts.storage,
        clock=parts.clock,
        batch_bytes_max=parts.settings.message_bytes_max,
        supervisor=parts.supervisor,
        fresh=parts.fresh,
        metrics=parts.metrics,
        traffic=traffic,
        authorizer=parts.access.authorizer,
        unpacked=parts.limits.budget.unpacked,
    )


def fetch_handler(
    parts: BrokerParts, leaders: CurrentLeaders, fetchers: Fetchers, traffic: TopicTraffic
) -> FetchHandler:
    """What gives records to clients, from the replica that is nearest to them if the settings say so."""
    settings = parts.settings
    nearby = NearbyReplicas(
        parts.replicas,
        by_rack=settings.replica_selector == "rack",
        rack=settings.rack or "",
        heard_s=fetchers.heard_s,
        clock=parts.clock,
    )
    return FetchHandler(
        replicas=parts.replicas,
        leaders=leaders,
        storage=parts.storage,
        nearby=nearby,
        clock=parts.clock,
        metrics=parts.metrics,
        traffic=traffic,
    )
