"""Nodes that say whether a disk or the store went back to an earlier state (safety rule S10, traces T8 and T9)."""

from dataclasses import dataclass
from typing import Self

from regnum_model.ids import BrokerId, DirectoryId
from regnum_model.nodes.reading import MAX_BROKER_ID, dumped, int_of, loaded, object_of, str_of, versioned


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """A stretch of a log directory's time: it begins with a registration, and anew each minute of writing."""

    id: str
    """Unique name of the run of the broker that began it."""
    count: int
    """How many lives the directory has had, this one included."""

    def fields(self) -> dict[str, object]:
        """Its JSON."""
        return {"life": self.id, "count": self.count}

    @classmethod
    def of(cls, value: object) -> Self:
        """Read; raises MalformedNodeError."""
        content = object_of(value, "a life")
        return cls(id=str_of(content.get("life"), "life"), count=int_of(content.get("count"), "count", low=1))

    def __str__(self) -> str:
        return f"{self.count} ({self.id})"


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeNode:
    """``/brokers/lives/<id>``: the newest life of a broker's log directory."""

    life: Life
    directory: DirectoryId
    """Whose life it is."""

    def encode(self) -> bytes:
        """JSON."""
        return dumped({"version": 1, **self.life.fields(), "directory": self.directory})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read; raises MalformedNodeError."""
        content = versioned(loaded(data), "a life")
        return cls(life=Life.of(content), directory=DirectoryId(str_of(content.get("directory"), "directory")))


@dataclass(frozen=True, slots=True, kw_only=True)
class WentBackNode:
    """``/cluster/went_back``: what proves that the store holds an earlier state than it did."""

    broker: BrokerId
    """Broker that proved it."""
    proof: str
    """What its disk or its memory says, and what the store says."""
    at_ms: int
    """When, in ms since 1970, by the broker's clock."""

    def encode(self) -> bytes:
        """JSON."""
        return dumped({"version": 1, "broker": self.broker, "proof": self.proof, "at_ms": self.at_ms})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read; raises MalformedNodeError."""
        content = versioned(loaded(data), "the note that the store went back")
        return cls(
            broker=BrokerId(int_of(content.get("broker"), "broker", low=0, high=MAX_BROKER_ID)),
            proof=str_of(content.get("proof"), "proof"),
            at_ms=int_of(content.get("at_ms"), "at_ms", low=0),
        )
