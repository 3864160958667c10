"""A member of a group in a process of its own, which writes down what it processes and then commits.

python -m regnum_testing.group_member BOOTSTRAP TOPIC GROUP FILE

A line of FILE for each run of records: when (monotonic nanoseconds, which processes of a machine share), partition,
first and last offset. Ends by SIGTERM, and by any error with its traceback.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from regnum_client import CommitFailedError, ConsumedRecord, Consumer, ConsumerSettings

SETTINGS: Final = ConsumerSettings(
    enable_auto_commit=False, session_timeout_s=6.0, heartbeat_interval_s=0.5, fetch_wait_ms=100, commit_timeout_s=60.0
)


class Run(NamedTuple):
    """Records of one partition that were processed one after another."""

    time_ns: int
    """When the last of them was."""
    partition: int
    """Partition number."""
    first: int
    """Offset of the first."""
    last: int
    """Offset of the last; all between them were processed."""


def runs_of(records: Sequence[ConsumedRecord], time_ns: int) -> list[Run]:
    """Runs in the order of the records; a gap begins a new one."""
    runs: list[Run] = []
    partition, first, last = -1, -1, -2
    for _, number, offset, *_ in records:
        if offset != last + 1 or number != partition:
            if first >= 0:
                runs.append(Run(time_ns, partition, first, last))
            partition, first = number, offset
        last = offset
    if first >= 0:
        runs.append(Run(time_ns, partition, first, last))
    return runs


def read_runs(file: Path) -> list[Run]:
    """What a member wrote; a line that was cut by its death is left out: it did not commit that."""
    if not file.exists():
        return []
    text = file.read_text()
    return [Run(*map(int, line.split())) for line in text[: text.rfind("\n") + 1].splitlines()]


async def consume(bootstrap: str, topic: str, group_id: str, file: str) -> None:
    """Process until SIGTERM, which is heard from the moment on that the file is there."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    descriptor = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
    async with Consumer(bootstrap, topics=[topic], group_id=group_id, settings=SETTINGS) as consumer:
        while not stopping.is_set():
            records = await consumer.read(records_max=5_000, timeout_s=0.5)
            if not records:
                continue
            runs = runs_of(records, time.monotonic_ns())
            lines = "".join(f"{' '.join(map(str, run))}\n" for run in runs)
            os.write(descriptor, lines.encode())  # one call: all of it or, where the process dies, nothing
            try:
                await consumer.commit()
            except CommitFailedError as error:
                print(error, file=sys.stderr)  # noqa: T201 - it is a program


def main(arguments: Sequence[str]) -> int:
    """Run it."""
    bootstrap, topic, group_id, file = arguments
    asyncio.run(consume(bootstrap, topic, group_id, file))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
