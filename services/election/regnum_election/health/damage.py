"""Nodes in the store that are damaged or were edited, and wait for a person, in the words of the wire."""

from collections.abc import Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Final

from regnum.admin.v1 import admin_pb2
from regnum_model import paths
from regnum_model.ids import PartitionKey

from regnum_election.decisions.cluster import Topic
from regnum_election.state.context import ControllerContext
from regnum_election.state.open_removals import Part

REASON_MAX: Final = 1_000
"""Characters of a reason; some of it was written into the store by hand."""

PARTS: Final[Mapping[Part, admin_pb2.PartitionDamage.ValueType]] = MappingProxyType(
    {
        Part.RECORD: admin_pb2.PARTITION_DAMAGE_REMOVAL_RECORD,
        Part.STATE: admin_pb2.PARTITION_DAMAGE_STATE_ON_ITS_WAY_OUT,
        Part.TOMBSTONE: admin_pb2.PARTITION_DAMAGE_TOMBSTONE,
    }
)


def damaged(context: ControllerContext) -> Iterator[admin_pb2.DamagedPartition]:
    """What nobody but a person can mend, besides states of partitions without a leader."""
    for name, reason in chain(context.refused.items(), _incomplete(context)):
        led_until_then = name in context.refused and name in context.picture.names
        led = (
            "its partitions are led on until another controller comes; until then `regnum partitions reassign --to "
            f"{name}/N=IDS --execute`, with the replicas that a partition has, writes the node anew; otherwise "
            if led_until_then
            else ""
        )
        yield admin_pb2.DamagedPartition(
            topic=name,
            partition=-1,
            damage=admin_pb2.PARTITION_DAMAGE_TOPIC_NODE,
            reason=reason[:REASON_MAX],
            advice=f"{led}correct the node {paths.TOPICS}/{name}, or delete it: the topic goes then, with all its "
            "records",
        )
    for edited, reason in _edited(context):
        number = edited.partitions[0]
        accepted = ",".join(map(str, context.picture.partitions[PartitionKey(edited.id, number)].wanted_replicas))
        yield admin_pb2.DamagedPartition(
            topic=edited.name,
            partition=-1,
            damage=admin_pb2.PARTITION_DAMAGE_TOPIC_NODE,
            reason=f"edited by hand: {reason}"[:REASON_MAX],
            advice="its partitions go on with the accepted replicas, also under another controller; "
            f"`regnum partitions reassign --to {edited.name}/{number}={accepted} --execute` writes the accepted "
            "assignment of all of them back, as does whatever is asked for of one of them",
        )
    for key, reason in context.spoiled.items():
        if (topic := context.picture.topics.get(key.topic_id)) is not None:
            yield admin_pb2.DamagedPartition(
                topic=topic.name,
                partition=key.partition,
                damage=admin_pb2.PARTITION_DAMAGE_STATE,
                reason=reason[:REASON_MAX],
                advice=f"its leader leads on until something about it has to change; write "
                f"{paths.leader_and_isr(topic.name, key.partition)} back, or see `regnum partitions recover` then",
            )
    for id, numbers in context.removals.damaged.items():
        topic = context.picture.topics.get(id)
        for number, damage in numbers.items() if topic is not None else ():
            yield admin_pb2.DamagedPartition(
                topic="" if topic is None else topic.name,
                partition=number,
                damage=PARTS[damage.part],
                reason=damage.reason[:REASON_MAX],
                advice="correct the node, or see `regnum partitions remove-damaged`; its number stays unused till then",
            )


def _incomplete(context: ControllerContext) -> Iterator[tuple[str, str]]:
    """Topics that run and whose nodes a person has to correct, with the reason."""
    standing = context.picture.names
    return (one for one in context.incomplete.items() if one[0] in standing and one[0] not in context.refused)


def _edited(context: ControllerContext) -> Iterator[tuple[Topic, str]]:
    """Topics whose nodes name other replicas than were accepted, with how."""
    for id, reason in context.edited.items():
        topic = context.picture.topics.get(id)
        if topic is not None and topic.name not in context.refused:
            yield topic, reason


def damaged_count(context: ControllerContext) -> int:
    """How much of it there is. Costs what there is."""
    incomplete, edited = sum(1 for _ in _incomplete(context)), sum(1 for _ in _edited(context))
    removals = map(len, context.removals.damaged.values())
    return sum((len(context.refused), incomplete, edited, len(context.spoiled), *removals))
