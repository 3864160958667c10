"""The async SDK: ``Admin``, ``Producer``, ``Consumer``.

    async with Producer() as producer:
        delivery = await producer.send("greetings", b"hello", key=b"world")
        print((await delivery).offset)

Names are loaded when they are first used (PEP 562), so that ``regnum --help`` does not pay for gRPC.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from regnum_client.admin import Admin, NewTopic
    from regnum_client.consumer import Consumer, ConsumerSettings
    from regnum_client.errors import (
        BufferFullError,
        ClientClosedError,
        DeliveryTimeoutError,
        OffsetOutOfRangeError,
        SequenceBrokenError,
        UnreadableBatchError,
    )
    from regnum_client.positions import EARLIEST, LATEST, ResetPolicy
    from regnum_client.producer import Producer, ProducerSettings
    from regnum_client.records import ConsumedRecord, RecordMetadata, TopicPartition

_HOMES: Final = {
    "Admin": "admin",
    "NewTopic": "admin",
    "Consumer": "consumer",
    "ConsumerSettings": "consumer",
    "BufferFullError": "errors",
    "ClientClosedError": "errors",
    "DeliveryTimeoutError": "errors",
    "OffsetOutOfRangeError": "errors",
    "SequenceBrokenError": "errors",
    "UnreadableBatchError": "errors",
    "EARLIEST": "positions",
    "LATEST": "positions",
    "ResetPolicy": "positions",
    "Producer": "producer",
    "ProducerSettings": "producer",
    "ConsumedRecord": "records",
    "RecordMetadata": "records",
    "TopicPartition": "records",
}

__all__ = [
    "EARLIEST",
    "LATEST",
    "Admin",
    "BufferFullError",
    "ClientClosedError",
    "ConsumedRecord",
    "Consumer",
    "ConsumerSettings",
    "DeliveryTimeoutError",
    "NewTopic",
    "OffsetOutOfRangeError",
    "Producer",
    "ProducerSettings",
    "RecordMetadata",
    "ResetPolicy",
    "SequenceBrokenError",
    "TopicPartition",
    "UnreadableBatchError",
]


def __getattr__(name: str) -> object:
    """The public name, from the module that defines it."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, loaded or not."""
    return sorted(__all__)
