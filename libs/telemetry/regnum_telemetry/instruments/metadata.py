"""What a metadata process shows. Pure."""

from typing import Final

from regnum_telemetry.instruments.definition import METADATA, Definitions

DEFINED: Final = Definitions(METADATA)
"""In the order of this file."""

METADATA_VERSION: Final = DEFINED.gauge(
    "regnum.metadata.version",
    "{versions}",
    "Version of the metadata that this process has",
)

BROKERS_SERVED: Final = DEFINED.gauge(
    "regnum.metadata.brokers.served",
    "{brokers}",
    "Brokers that this process serves",
)

BROKERS_BEHIND: Final = DEFINED.gauge(
    "regnum.metadata.brokers.behind",
    "{brokers}",
    "Brokers among them that have not acknowledged the newest version",
)

BROKER_LAG: Final = DEFINED.gauge(
    "regnum.metadata.broker.lag",
    "{versions}",
    "How many versions a broker is behind; brokers that are not are left out",
    labels=("broker",),
)

PAYLOADS: Final = DEFINED.counter(
    "regnum.metadata.payloads",
    "{payloads}",
    "Changes of metadata serialised: once each, however many brokers they go to; full ones, or intervals of versions",
    labels=("kind",),
)

PAYLOAD_BYTES: Final = DEFINED.counter(
    "regnum.metadata.payloads.serialised",
    "By",
    "Bytes of these payloads; of a full one also those that were kept from the one before",
    labels=("kind",),
)

PAYLOAD_BYTES_SENT: Final = DEFINED.counter(
    "regnum.metadata.payloads.sent",
    "By",
    "Bytes of payloads that the streams of brokers have taken, whatever became of them",
)

WATCHERS_OPEN: Final = DEFINED.gauge(
    "regnum.metadata.watchers.open",
    "{streams}",
    "Streams of WatchMetadata that are open",
)

WATCHERS_SENT: Final = DEFINED.counter(
    "regnum.metadata.watchers.sent",
    "By",
    "Bytes that these streams were told",
)

WATCHERS_DROPPED: Final = DEFINED.counter(
    "regnum.metadata.watchers.dropped",
    "{streams}",
    "Streams of WatchMetadata that were refused, or ended for what they asked: too many, or too many topics",
)
