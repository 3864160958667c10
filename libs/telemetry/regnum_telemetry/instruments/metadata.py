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
