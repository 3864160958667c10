"""Deletes what a calibration leaves behind, also when that is killed: a process that watches it.

It is told the cluster and how the topics' names begin, and reads its standard input: the word ``done`` means that
nothing is left. Without that, the end of the input is the end of the calibration, however it came, and every topic
whose name begins so is deleted.
"""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from typing import IO, Final, Self

from regnum.types.v1 import errors_pb2
from regnum_service.clock import Clock, SystemClock
from regnum_service.errors import RegnumError

from regnum_client.admin.admin import Admin

PREFIX: Final = "regnum-calibrate-"
"""How the names of all topics of all calibrations begin."""
DONE: Final = b"done"
TIMEOUT_S: Final = 120.0
"""How long what is left is tried to be deleted."""
LOOK_S: Final = 0.5
"""Between two looks at what is left."""
QUIET_S: Final = 10.0
"""Nothing has to be there for so long: the last calls of whoever was killed may be under way, in a controller's queue
that the calibration has filled itself."""
GONE: Final = frozenset({errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION, errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID})
"""Somebody else was faster."""
BATCH: Final = 200
"""Topics deleted in one call."""


class Janitor:
    """The process, seen from the one that it watches."""

    def __init__(self, process: "subprocess.Popen[bytes]", told: IO[bytes]) -> None:
        self._process: Final = process
        self._told: Final = told

    @classmethod
    def start(cls, bootstrap: str, prefix: str) -> Self:
        """Begin to be watched. Its session is its own: Ctrl-C at the terminal does not reach it."""
        process = subprocess.Popen(  # noqa: S603 - our own module, our own words
            [sys.executable, "-P", "-m", "regnum_client.commands.quotas.janitor", bootstrap, prefix],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        if process.stdin is None:
            raise AssertionError("a pipe was asked for")
        return cls(process, process.stdin)

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def dismiss(self) -> None:
        """Nothing is left: end."""
        try:
            self._told.write(DONE)
            self._told.close()
        except BrokenPipeError:
            # It was killed; then there is nobody to be told.
            return
        self._process.wait(TIMEOUT_S)


async def leftovers(admin: Admin, prefix: str) -> list[str]:
    """Topics whose names begin so."""
    return [topic.name for topic in await admin.list_topics() if topic.name.startswith(prefix)]


async def sweep(admin: Admin, prefix: str, *, clock: Clock, quiet_s: float) -> int:
    """Delete all topics whose names begin so; how many there were.

    Args:
        admin: the cluster.
        prefix: how their names begin.
        clock: source of time.
        quiet_s: for so long none may have been there at the end; 0 where no call is under way.

    Raises:
        RegnumError: one cannot be deleted, for good or for TIMEOUT_S.
    """
    if not prefix.startswith(PREFIX):
        raise ValueError(f"{prefix!r} is no name of a calibration's topics")
    swept: set[str] = set()
    begun_s = quiet_since_s = clock.monotonic()
    while True:
        names = await leftovers(admin, prefix)
        now_s = clock.monotonic()
        if names:
            quiet_since_s = now_s
        elif now_s - quiet_since_s >= quiet_s:
            return len(swept)
        if now_s - begun_s >= TIMEOUT_S:
            raise RegnumError(
                errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
                f"{len(names)} topics of a calibration are still there after {TIMEOUT_S:g} s;"
                " delete them with `regnum quotas calibrate --clean`",
            )
        await _delete(admin, names)
        swept.update(names)
        await clock.sleep(LOOK_S)


async def _delete(admin: Admin, names: Sequence[str]) -> None:
    """Raises RegnumError when one cannot be deleted, unless it may be a moment later."""
    for start in range(0, len(names), BATCH):
        answers = await admin.delete_topics(names[start : start + BATCH], timeout_s=TIMEOUT_S)
        for answer in answers.values():
            if isinstance(answer, RegnumError) and answer.code not in GONE and not answer.traits.retriable:
                raise answer


async def _after(bootstrap: str, prefix: str) -> None:
    async with Admin(bootstrap, timeout_s=TIMEOUT_S, client_id=PREFIX + "janitor") as admin:
        await sweep(admin, prefix, clock=SystemClock(), quiet_s=QUIET_S)


def main(bootstrap: str, prefix: str) -> None:
    """Wait for the end of the input; clean up unless that is done."""
    if sys.stdin.buffer.read() != DONE:
        asyncio.run(_after(bootstrap, prefix))


if __name__ == "__main__":
    main(*sys.argv[1:])
