"""Keeps a broker's settings as the store has them: read at the start of each session and with every announced change.

A broker that cannot read them goes on with what it knows.
"""

from collections.abc import Awaitable, Callable
from contextlib import aclosing

import structlog
from regnum_coordination.errors import ConnectionLoss, SessionExpired
from regnum_coordination.port import Store
from regnum_coordination.recipes.announced import Announced
from regnum_coordination.recipes.stored_quotas import StoreReader
from regnum_coordination.timing import Backoff
from regnum_model.configs import CLUSTER, broker_config
from regnum_model.ids import BrokerId
from regnum_model.quotas import CHANGES
from regnum_service.clock import Clock

from regnum_broker.configs.dynamic import DynamicConfigs
from regnum_broker.configs.values import NodeReading, Stored, read_node, read_protocol


async def follow_configs(
    id: BrokerId, wait_store: Callable[[], Awaitable[Store]], configs: DynamicConfigs, clock: Clock
) -> None:
    """Follow one session after another, for ever; a task of the supervisor.

    Args:
        id: of this broker.
        wait_store: the present session, as soon as there is one.
        configs: told what was read.
        clock: paces the tries.
    """
    own = broker_config(id)
    backoff, attempts, log = Backoff(), 0, structlog.get_logger("configs")
    while True:
        store = await wait_store()
        reader, announced = StoreReader(store), Announced()
        try:
            async with aclosing(store.watch_children(CHANGES)) as changes:
                async for children in changes:
                    # What is announced is written already.
                    changed = await announced.look(reader, children.names)
                    if changed is None or changed & {own, CLUSTER}:
                        configs.take(await _read(reader, own, configs.stored, log))
                    attempts = 0
        except (ConnectionLoss, SessionExpired) as error:
            log.info("settings not followed; trying on", reason=str(error))
        attempts += 1
        await clock.sleep(backoff.pause_s(attempts))


async def _read(reader: StoreReader, own: str, before: Stored, log: structlog.stdlib.BoundLogger) -> Stored:
    nodes = await reader.read_many((own, CLUSTER))

    def read(path: str, known: dict[str, int]) -> NodeReading:
        node = nodes.get(path)
        reading = read_node(None if node is None else node.data, known)
        if reading.problem:
            log.error("settings not readable", path=path, reason=reading.problem, advice="correct the node")
        return reading

    cluster = nodes.get(CLUSTER)
    of_broker, of_cluster = read(own, dict(before.own)), read(CLUSTER, dict(before.cluster))
    return Stored(
        own=of_broker.values,
        cluster=of_cluster.values,
        protocol=read_protocol(None if cluster is None else cluster.data, before.protocol),
        # What was known stays what it was.
        unknown=before.unknown & (of_broker.unreadable | of_cluster.unreadable),
    )
