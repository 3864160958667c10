"""The listener for clients that speak Kafka's protocol: the same services, limits and rights, by another door."""

from regnum_model.nodes import Address
from regnum_service.access.guards.guard import Guard
from regnum_telemetry.instruments import process as instruments

from regnum_broker.composition.listeners import ClientServices
from regnum_broker.composition.parts import BrokerParts
from regnum_broker.kafka.addresses import Addresses
from regnum_broker.kafka.admin import Admin
from regnum_broker.kafka.administration.acls import AclAdministration
from regnum_broker.kafka.administration.configs import ConfigAdministration
from regnum_broker.kafka.administration.groups import GroupAdministration
from regnum_broker.kafka.administration.logs import LogAdministration
from regnum_broker.kafka.administration.partitions import PartitionAdministration
from regnum_broker.kafka.administration.passing_on import PassingOn
from regnum_broker.kafka.administration.topic_partitions import TopicPartitions
from regnum_broker.kafka.administration.users import UserAdministration
from regnum_broker.kafka.auto_creation import AutoCreation, TopicDefaults
from regnum_broker.kafka.data import Data
from regnum_broker.kafka.door import Door
from regnum_broker.kafka.groups import Groups
from regnum_broker.kafka.listener import LISTENER, KafkaListener
from regnum_broker.serving.calls.rights import guarded


async def start_kafka(address: Address | None, parts: BrokerParts, served: ClientServices) -> tuple[KafkaListener, ...]:
    """Have the listener served, if there is to be one. Raises PortTakenError."""
    if address is None:
        return ()
    listener = kafka_listener(address, parts, served)
    await listener.start()
    parts.supervisor.defer("kafka listener", listener.stop)
    parts.metrics.observe_also(instruments.CONNECTIONS, lambda: (((LISTENER,), listener.connections),))
    return (listener,)


def kafka_listener(address: Address, parts: BrokerParts, served: ClientServices) -> KafkaListener:
    """Put it together.

    Args:
        address: where it listens.
        parts: of this broker.
        served: to clients.
    """
    guard, limits, settings = Guard(parts.access.authorizer), parts.limits, parts.settings
    addresses, authorizer = Addresses(served.cache), parts.access.authorizer
    controller = PassingOn(broker=parts.id, addresses=addresses, forwarding=served.forwarding)
    log = guard.before("regnum.broker.v1.LogService", served.log)
    calls = served.log.calls
    groups = guard.before("regnum.broker.v1.GroupService", served.groups)
    door = Door(
        data=Data(
            log=guarded(calls, served.producers.ids.next_id, authorizer),
            addresses=addresses,
            follows=parts.replicas.follows,
        ),
        log=calls,
        groups=Groups(groups=groups, addresses=addresses),
        admin=Admin(
            cache=served.cache,
            leaders=served.leaders,
            addresses=addresses,
            authorizer=authorizer,
            controller=controller,
            creation=AutoCreation(
                defaults=TopicDefaults(settings.auto_create_topics, settings.num_partitions),
                cache=served.cache,
                forwarding=served.forwarding,
            ),
        ),
        administration={
            **GroupAdministration(groups=groups, authorizer=authorizer).rooms,
            **PartitionAdministration(controller=controller, cache=served.cache, authorizer=authorizer).rooms,
            **ConfigAdministration(
                controller=controller, cache=served.cache, addresses=addresses, authorizer=authorizer
            ).rooms,
            **LogAdministration(
                log=log,
                replicas=parts.replicas,
                leaders=served.leaders,
                storage=parts.storage,
                disk=parts.disk,
                authorizer=authorizer,
            ).rooms,
            **TopicPartitions(
                cache=served.cache, leaders=served.leaders, addresses=addresses, authorizer=authorizer
            ).rooms,
            **AclAdministration(controller=controller).rooms,
            **UserAdministration(controller=controller, authorizer=authorizer).rooms,
        },
        gates=limits.throttling.gates,
        answers=limits.answers,
        meter=limits.throttling,
        clock=parts.clock,
        metrics=parts.metrics,
    )
    return KafkaListener(
        address,
        door=door,
        budget=limits.budget,
        access=parts.access.at(parts.tls.client),
        request_bytes_max=settings.socket_request_max_bytes,
        clock=parts.clock,
        supervisor=parts.supervisor,
        metrics=parts.metrics,
        chance=parts.machine.chance,
    )
