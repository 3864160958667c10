"""Keys and values as the application wants them, of the bytes that records hold."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from regnum_client.consumer.settings import ConsumerSettings
from regnum_client.errors import RecordDeserializationError
from regnum_client.records import ConsumedRecord, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Deserializers:
    """What an application makes of bytes."""

    key: Callable[[bytes], Any] | None
    """Of keys; None: they stay bytes."""
    value: Callable[[bytes], Any] | None
    """The same for values: bytes of a record in, anything out."""

    @classmethod
    def of(cls, settings: ConsumerSettings) -> Self | None:
        """Those of the settings; None: there are none."""
        if settings.key_deserializer is None and settings.value_deserializer is None:
            return None
        return cls(key=settings.key_deserializer, value=settings.value_deserializer)

    def apply(
        self, records: Sequence[ConsumedRecord]
    ) -> tuple[list[ConsumedRecord], RecordDeserializationError | None]:
        """Records up to the first that one of them raises for, and the error of that; None: there is none."""
        done: list[ConsumedRecord] = []
        for record in records:
            try:
                key = _of(self.key, record.key, record, "key")
                value = _of(self.value, record.value, record, "value")
            except RecordDeserializationError as error:
                return done, error
            done.append(record._replace(key=key, value=value))
        return done, None


def _of(function: Callable[[bytes], Any] | None, content: bytes | None, record: ConsumedRecord, what: str) -> Any:
    if function is None or content is None:
        return content
    try:
        return function(content)
    except Exception as error:
        # What functions of the application may raise is not known here; it is the cause of what is raised instead.
        partition = TopicPartition(record.topic, record.partition)
        raise RecordDeserializationError(partition, offset=record.offset, what=what, reason=repr(error)) from error
