"""What a broker has of a partition, as the judge takes it."""

from typing import Any

from regnum_records.read import read_records

from regnum_testing.simulation.judging.judge import Log


def log_of(replica: Any) -> Log:
    """A replica of a broker as it is now."""
    log, records = replica.log, []
    at = log.log_start_offset
    while at < log.log_end_offset:
        some = list(read_records(log.read(at, bytes_max=1 << 24), from_offset=at))
        records += [(record.offset, int(record.value or b"")) for record in some]
        at = some[-1].offset + 1
    return Log(start=log.log_start_offset, records=tuple(records), high_watermark=replica.high_watermark)


def directory_of(broker: Any) -> Any:
    """The log directory of a broker that runs."""
    return vars(broker)["_storage"].directory
