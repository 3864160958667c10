"""The listener for clients that speak Kafka's protocol: the same services, limits and rights, by another door."""

from regnum_model.nodes import Address
from regnum_service.access.guards.guard import Guard
from regnum_telemetry.instruments import process as instruments

from regnum_broker.composition.listeners import ClientServices
from regnum_broker.composition.parts import BrokerParts
from regnum_broker.kafka.addresses import Addresses
from regnum_broker.kafka.admin import Admin
from regnum_broker.kafka.auto_creation import AutoCreation, TopicDefaults
from regnum_broker.kafka.data import Data
from regnum_broker.kafka.door import Door
from regnum_broker.kafka.groups import Groups
from regnum_broker.kafka.listener import LISTENER, KafkaListener


async def start_kafka(address: Address | None, parts: BrokerParts, served: ClientServices) -> tuple[int, ...]:
    """Have the listener served; its port, if there is to be one. Raises PortTakenError."""
    if address is None:
        return ()
    listener = kafka_listener(address, parts, served)
    await listener.start()
    parts.supervisor.defer("kafka listener", listener.stop)
    parts.metrics.observe_also(instruments.CONNECTIONS, lambda: (((LISTENER,), listener.connections),))
    return (listener.address.port,)


def kafka_listener(address: Address, parts: BrokerParts, served: ClientServices) -> KafkaListener:
    """Put it together.

    Args:
        address: where it listens.
        parts: of this broker.
        served: to clients.
    """
    guard, limits, settings = Guard(parts.access.authorizer), parts.limits, parts.settings
    addresses = Addresses(served.cache)
    door = Door(
        data=Data(
            log=guard.before("regnum.broker.v1.LogService", served.log),
            producers=guard.before("regnum.broker.v1.ProducerService", served.producers),
            addresses=addresses,
        ),
        groups=Groups(groups=guard.before("regnum.broker.v1.GroupService", served.groups), addresses=addresses),
        admin=Admin(
            broker=parts.id,
            cache=served.cache,
            leaders=served.leaders,
            addresses=addresses,
            authorizer=parts.access.authorizer,
            forwarding=served.forwarding,
            creation=AutoCreation(
                defaults=TopicDefaults(settings.auto_create_topics, settings.num_partitions),
                cache=served.cache,
                forwarding=served.forwarding,
            ),
        ),
        gates=limits.throttling.gates,
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
    )
