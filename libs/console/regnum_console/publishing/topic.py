"""The topic ``__traces``: how it comes to be, and how documents get into it."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from regnum.types.v1 import errors_pb2
from regnum_model.configs import MAX_MESSAGE_BYTES
from regnum_model.topics import TRACES_TOPIC
from regnum_service.errors import RegnumError

CONFIGS: Final = {
    MAX_MESSAGE_BYTES: str(8 * 2**20),
    # A week for whatever reads it to come back.
    "retention.ms": str(7 * 86_400_000),
}
"""What it is made with; change it as that of any topic."""


class Writer(Protocol):
    """What is needed of a producer."""

    async def send(self, topic: str, value: Any) -> Awaitable[object]: ...  # noqa: D102
    async def check_topic(self, topic: str) -> int: ...  # noqa: D102


class Maker(Protocol):
    """What is needed of an admin client."""

    async def create_topic(self, name: str, *, configs: Mapping[str, str]) -> object: ...  # noqa: D102


@dataclass(slots=True)
class Counted:
    """What was published."""

    records: int = 0
    """Records that the cluster has acknowledged."""
    bytes: int = 0
    """Theirs."""
    refused: int = 0
    """Documents that are larger than the topic takes; they are left out."""
    failures: int = 0
    """Attempts to write that failed."""


class TracesTopic:
    """Writes documents. Belongs to the event loop."""

    def __init__(self, writer: Writer, maker: Maker) -> None:
        """Only assigns."""
        self._writer: Final = writer
        self._maker: Final = maker
        self.counted: Final = Counted()
        """What was done so far."""

    async def ensure(self) -> None:
        """Have the controller make the topic unless it is there. Raises RegnumError."""
        try:
            await self._writer.check_topic(TRACES_TOPIC)
        except RegnumError as error:
            if error.code != errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION:
                raise
            try:
                await self._maker.create_topic(TRACES_TOPIC, configs=CONFIGS)
            except RegnumError as refused:
                if refused.code != errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS:
                    raise

    async def write(self, documents: Iterable[bytes]) -> list[bool]:
        """Return when the cluster has all of them but those that are too large: of each whether it was taken.

        Raises RegnumError where one of the others did not get there: any of them may have. A topic that was deleted is
        there again when it does.
        """
        outcomes = await asyncio.gather(*map(self._write, documents), return_exceptions=True)
        taken = []
        for one in outcomes:
            if isinstance(one, BaseException):
                self.counted.failures += 1
                if isinstance(one, RegnumError) and one.code == errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION:
                    await self.ensure()
                raise one
            taken.append(one)
        return taken

    async def _write(self, document: bytes) -> bool:
        try:
            await (await self._writer.send(TRACES_TOPIC, document))
        except RegnumError as error:
            if error.code != errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE:
                raise
            self.counted.refused += 1
            return False
        self.counted.records += 1
        self.counted.bytes += len(document)
        return True
