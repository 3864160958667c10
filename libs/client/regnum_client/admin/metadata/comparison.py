"""What differs between what two processes hold of the cluster. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from google.protobuf.message import Message
from regnum.metadata.v1.image_pb2 import DescribeImageResponse
from regnum.types.v1.types_pb2 import PartitionState


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that a process holds otherwise than the controller published it."""

    process: str
    """Which process."""
    topic: str = ""
    """Topic; empty: the brokers or the controller."""
    partition: int | None = None
    """Partition; None: the topic as such."""
    field: str
    """Name of the field on the wire, or what is there and should not be, or the other way round."""
    held: str
    """What the process holds; empty: nothing."""
    published: str
    """What the controller published; empty: nothing."""


def differing_sections(one: DescribeImageResponse, other: DescribeImageResponse) -> list[int]:
    """Sections of topics whose digests differ."""
    return [
        number
        for number, (mine, theirs) in enumerate(zip(one.section_digests, other.section_digests, strict=True))
        if mine != theirs
    ]


def differing_topics(one: Mapping[str, bytes], other: Mapping[str, bytes]) -> list[str]:
    """Topics that only one of them has, or whose digests differ; by name."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def head_differences(
    process: str, held: DescribeImageResponse, published: DescribeImageResponse
) -> Iterator[Difference]:
    """What differs in the cluster's id, the controller and the brokers."""
    if held.cluster_id != published.cluster_id:
        yield Difference(process=process, field="cluster_id", held=held.cluster_id, published=published.cluster_id)
    if held.controller != published.controller:
        yield Difference(
            process=process, field="controller", held=_words(held.controller), published=_words(published.controller)
        )
    mine, theirs = ({one.id: one for one in answer.brokers} for answer in (held, published))
    for id in sorted(mine.keys() | theirs.keys()):
        if mine.get(id) != theirs.get(id):
            yield Difference(
                process=process, field=f"broker {id}", held=_words(mine.get(id)), published=_words(theirs.get(id))
            )


def topic_differences(
    process: str,
    topic: str,
    held: tuple[str, Mapping[int, PartitionState]] | None,
    published: tuple[str, Mapping[int, PartitionState]] | None,
) -> Iterator[Difference]:
    """What differs in a topic: with each side its topic id and its partitions; None: it is not there."""
    if held is None or published is None or held[0] != published[0]:
        yield Difference(
            process=process,
            topic=topic,
            field="topic_id",
            held="" if held is None else held[0],
            published="" if published is None else published[0],
        )
        return
    for number in sorted(held[1].keys() | published[1].keys()):
        mine, theirs = held[1].get(number), published[1].get(number)
        if mine is None or theirs is None:
            yield Difference(
                process=process,
                topic=topic,
                partition=number,
                field="partition",
                held=_words(mine),
                published=_words(theirs),
            )
            continue
        for field in PartitionState.DESCRIPTOR.fields:
            if getattr(mine, field.name) != getattr(theirs, field.name):
                yield Difference(
                    process=process,
                    topic=topic,
                    partition=number,
                    field=field.name,
                    held=_value(mine, field.name),
                    published=_value(theirs, field.name),
                )


def _value(state: PartitionState, field: str) -> str:
    value = getattr(state, field)
    return ",".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)


def _words(message: Message | None) -> str:
    return "" if message is None else " ".join(str(message).split())
