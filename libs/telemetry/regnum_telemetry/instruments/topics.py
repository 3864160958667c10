"""What a broker shows of single topics: as many as ``--metrics-topics-max`` says, the rest together. Pure.

What has a place keeps it while it is used: see ``regnum_broker.serving.topic_traffic``.
"""

from typing import Final

from regnum_telemetry.instruments.definition import BROKER, Definitions

DEFINED: Final = Definitions(BROKER)
"""In the order of this file."""

WHICH: Final = ("topic",)
"""Label: a topic that has a place, or ``other``."""

TOPIC_BYTES_IN: Final = DEFINED.counter(
    "regnum.broker.topic.produced",
    "By",
    "Bytes of record batches appended, by topic",
    labels=WHICH,
    kafka="kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=",
)

TOPIC_RECORDS_IN: Final = DEFINED.counter(
    "regnum.broker.topic.produced.records",
    "{records}",
    "Records appended, by topic",
    labels=WHICH,
    kafka="kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=",
)

TOPIC_BYTES_OUT: Final = DEFINED.counter(
    "regnum.broker.topic.fetched",
    "By",
    "Bytes of records sent to consumers, by topic",
    labels=WHICH,
    kafka="kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec,topic=",
)

TOPIC_RECORDS_OUT: Final = DEFINED.counter(
    "regnum.broker.topic.fetched.records",
    "{records}",
    "Records of batches sent to consumers, by topic",
    labels=WHICH,
)

TOPIC_LOG_SIZE: Final = DEFINED.gauge(
    "regnum.broker.topic.log.size",
    "By",
    "Bytes of the segments of all replicas here, by topic",
    labels=WHICH,
    kafka="kafka.log:type=Log,name=Size,topic=,partition=",
)
