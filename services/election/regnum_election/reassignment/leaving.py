"""Topic nodes name brokers that partitions went away from until these have confirmed; here is where they stop to."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from functools import partial
from typing import Final

from regnum_coordination.errors import BadVersion
from regnum_coordination.port import Check, Group, Refused, Set, Written
from regnum_model import paths
from regnum_model.ids import BrokerId, TopicId
from regnum_model.nodes import TopicNode

from regnum_election.decisions.topic_nodes import readable
from regnum_election.dispatch.departing import Brokers
from regnum_election.reign.beside import Beside
from regnum_election.state.context import ControllerContext

TOPICS_PER_STEP: Final = 50
"""Topic nodes that one step writes."""


async def take_confirmed_out(context: ControllerContext) -> AsyncGenerator[None, None]:
    """Steps that write topic nodes without the brokers that have confirmed; what conflicts is for the next time."""
    conflicts: dict[TopicId, Brokers] = {}
    while confirmed := context.dispatch.departing.take_confirmed(TOPICS_PER_STEP):
        conflicts |= await _take_out(context, confirmed)
        yield
    for id, brokers in conflicts.items():
        context.dispatch.departing.give_back(id, brokers)


async def _take_out(context: ControllerContext, confirmed: dict[TopicId, Brokers]) -> dict[TopicId, Brokers]:
    """One step; what another write came before."""
    named = {paths.topic(topic.name): id for id in confirmed if (topic := context.picture.topics.get(id)) is not None}
    groups: list[Group] = []
    meant: list[TopicId] = []
    encoding = Beside()
    for path, found in (await context.store.read_many(tuple(named))).items():
        id = named[path]
        node = await encoding.result(partial(readable, found.data), weight=len(found.data))
        if node is None or node.topic_id != id:
            continue
        changed = _without(node, confirmed[id])
        if changed != node:
            data = await encoding.result(changed.encode, weight=len(found.data))
            groups.append((Check(paths.topic_id(id)), Set(path, data, found.stat.version)))
            meant.append(id)
    versions: dict[TopicId, int] = {}
    conflicts: dict[TopicId, Brokers] = {}
    for id, outcome in zip(meant, await context.store.write_batch(groups), strict=True):
        match outcome:
            case Written(results=results):
                if (stat := results[-1].stat) is not None:
                    versions[id] = stat.version
            case Refused(error=BadVersion()):
                conflicts[id] = confirmed[id]
            case Refused(error=error):
                context.log.warning("topic node not written", topic_id=id, reason=str(error))
    context.picture = context.picture.with_topic_versions(versions)
    return conflicts


def _without(node: TopicNode, confirmed: Brokers) -> TopicNode:
    left: dict[int, tuple[BrokerId, ...]] = {}
    for number, brokers in node.left.items():
        kept = tuple(broker for broker in brokers if broker not in confirmed.get(number, ()))
        if kept:
            left[number] = kept
    return replace(node, left=left)
