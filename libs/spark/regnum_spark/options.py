"""Options of ``format("regnum")``, by the names of Spark's own source for Kafka where they mean the same. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from regnum_service.tls.files import TlsFiles

from regnum_spark.ranges import EARLIEST, LATEST, OptionError, place_of

READ_TIMEOUT_S: Final = 120.0
_KNOWN: Final = {
    name.lower(): name
    for name in (
        "bootstrap", "subscribe", "topic", "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp",
        "maxOffsetsPerTrigger", "maxRecordsPerPartition", "failOnDataLoss", "readTimeoutS", "clientId", "tlsCa",
        "tlsCertificate", "tlsKey", "tokenFile", "path",
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a reader or a writer is told."""

    bootstrap: str | None
    """Addresses, with commas; None: as the SDK finds them in each process (``REGNUM_BOOTSTRAP``)."""
    topics: tuple[str, ...]
    """Topics that are read."""
    topic: str | None
    """Topic that rows are written to which name none."""
    starting: str | Mapping[str, Mapping[str, int | str]]
    """Where reading begins; of a stream only where its checkpoint says nothing."""
    ending: str | Mapping[str, Mapping[str, int | str]]
    """Where a batch ends."""
    starting_ms: int | None
    """Or the moment that it begins at, in milliseconds since 1970."""
    ending_ms: int | None
    """Or the moment that it ends before: at the first record from then on."""
    records_per_step_max: int | None
    """Records of one micro-batch."""
    records_per_task_max: int | None
    """A range with more is read by several tasks."""
    fail_on_data_loss: bool
    """Whether offsets that the log no longer has are an error, or left out."""
    read_timeout_s: float
    """How long a task waits for a record that is there, changes of leader included."""
    client_id: str
    """Name of the client, by which quotas know it."""
    tls: TlsFiles | None
    """What connections are protected with; None: as the SDK finds it in each process (``REGNUM_TLS_*``)."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "Options":
        """Raises OptionError for what no option is called, or cannot be."""
        known = {name.lower(): value for name, value in options.items()}
        if unknown := sorted(set(known) - set(_KNOWN)):
            raise OptionError(f"there is no option {unknown[0]}; there are: {', '.join(_KNOWN.values())}")
        of = known.get
        named = (of("subscribe") or of("path") or "").split(",")
        return cls(
            bootstrap=of("bootstrap"),
            topics=tuple(dict.fromkeys(name.strip() for name in named if name.strip())),
            topic=of("topic") or of("path"),
            starting=place_of("startingOffsets", of("startingoffsets", EARLIEST)),
            ending=place_of("endingOffsets", of("endingoffsets", LATEST)),
            starting_ms=_integer("startingTimestamp", of("startingtimestamp"), least=0),
            ending_ms=_integer("endingTimestamp", of("endingtimestamp"), least=0),
            records_per_step_max=_integer("maxOffsetsPerTrigger", of("maxoffsetspertrigger"), least=1),
            records_per_task_max=_integer("maxRecordsPerPartition", of("maxrecordsperpartition"), least=1),
            fail_on_data_loss=_truth("failOnDataLoss", of("failondataloss", "true")),
            read_timeout_s=float(of("readtimeouts", str(READ_TIMEOUT_S))),
            client_id=of("clientid", "regnum-spark"),
            tls=_tls(*(of(name) for name in ("tlsca", "tlscertificate", "tlskey", "tokenfile"))),
        )


def _integer(option: str, text: str | None, *, least: int) -> int | None:
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise OptionError(f"{option} is {text!r}; write an integer of {least} or more")
    return value


def _truth(option: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise OptionError(f"{option} is {text!r}; write true or false")
    return text.lower() == "true"


def _tls(ca: str | None, certificate: str | None, key: str | None, token: str | None) -> TlsFiles | None:
    if not any((ca, certificate, key, token)):
        return None
    paths = [None if text is None else Path(text) for text in (ca, certificate, key, token)]
    return TlsFiles(ca=paths[0], certificate=paths[1], key=paths[2], token=paths[3])
