"""What a process holds of the cluster's metadata, at one version. Never changed in place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from regnum.types.v1 import types_pb2
from regnum_model.ids import ControllerEpoch
from regnum_model.picture_line import NO_PICTURE, PictureVersion

EPOCH_BITS: Final = 32
"""In a version as clients see it the controller epoch stands above so many bits for the number."""


class HeldTopic(Protocol):
    """A topic. Never changed in place: a topic that changes is another object afterwards."""

    @property
    def name(self) -> str:
        """Topic name."""

    @property
    def topic_id(self) -> str:
        """Topic id."""

    @property
    def partitions(self) -> Mapping[int, types_pb2.PartitionState]:
        """States by number, which is never negative."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldImage:
    """Everything, as of one version."""

    position: PictureVersion = NO_PICTURE
    """The version; NO_PICTURE while there is none."""
    cluster_id: str = ""
    """Which cluster it is of; empty while nobody said."""
    controller: types_pb2.Controller = field(default_factory=lambda: types_pb2.Controller(id=-1))
    """The active controller."""
    brokers: Sequence[types_pb2.Broker] = ()
    """Live brokers, by id."""
    topics: Mapping[str, HeldTopic] = field(default_factory=dict)
    """Topics by name; a mapping that nobody changes."""


def to_wire(position: PictureVersion) -> int:
    """A version as messages for clients carry it: epochs and numbers grow together."""
    return (position.epoch << EPOCH_BITS) + position.number


def from_wire(version: int) -> PictureVersion:
    """The version that a message means."""
    epoch, number = divmod(max(version, 0), 1 << EPOCH_BITS)
    return PictureVersion(ControllerEpoch(epoch), number)
