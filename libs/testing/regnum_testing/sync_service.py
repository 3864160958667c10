"""A service without asyncio, as somebody would write it; ``mypy --strict`` reads what its types are."""

from collections.abc import Iterator
from concurrent.futures import Future
from typing import assert_type

from regnum_client import (
    AtTime,
    ConsumedRecord,
    ConsumerSettings,
    CreatedTopic,
    DeletedTopic,
    RecordBatch,
    RecordMetadata,
    ResetPolicy,
    TopicPartition,
)
from regnum_client.cluster.view import TopicView
from regnum_client.sync import Admin, Consumer, Producer


def echo(bootstrap: str, topic: str, lines: list[str]) -> list[str]:
    """Create a topic, write lines to it, read them back in order and delete it."""
    with Admin(bootstrap) as admin:
        created = admin.create_topic(topic, partitions=1)
        assert_type(created, CreatedTopic)
        assert_type(admin.describe_topics([topic]), Iterator[TopicView])
    with Producer(bootstrap) as producer:
        sent = [producer.send(topic, line.encode(), key=None) for line in lines]
        assert_type(sent, list[Future[RecordMetadata]])
        producer.flush(timeout_s=120.0)
        offsets = [delivery.result().offset for delivery in sent]
        assert_type(offsets, list[int])
    with Consumer(bootstrap, settings=ConsumerSettings(reset=ResetPolicy.EARLIEST)) as consumer:
        assert_type(consumer.assign(topic, start=AtTime(0)), tuple[TopicPartition, ...])
        found = _read(consumer, len(lines))
    with Admin(bootstrap) as admin:
        assert_type(admin.delete_topic(topic), DeletedTopic)
    return found


def _read(consumer: Consumer, count: int) -> list[str]:
    found: list[str] = []
    for record in consumer:
        assert_type(record, ConsumedRecord)
        found.append((record.value or b"").decode())
        if len(found) == count // 2:
            break
    while len(found) < count:
        batch = consumer.read_batch(timeout_s=5.0)
        assert_type(batch, RecordBatch | None)
        found.extend((record.value or b"").decode() for record in batch or ())
    return found
