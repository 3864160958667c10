"""FollowState as the controller serves it: every standby gets what it lacks, and nobody waits for one of them.

Goals: many standbys cost one encoding; one that is slow costs no memory; a flood of changes costs few messages.

Algorithm: what a standby lacks comes from the journal of publications, so that the picture it then has is the one
published under that version. Whoever lacks more than the journal reaches back gets everything. The parts of a change
are encoded once (``encodings``). A change goes out at once if none did for INTERVAL_S; otherwise changes merge until
that time is over. A change of many partitions is part of something that goes on (a failure, a creation), for which
brokers wait: it goes out SETTLING_S later, when most of them have their last state.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_model.ids import ControllerEpoch
from regnum_model.picture_line import NO_PICTURE, PictureVersion
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

from regnum_election.publication.delta_log import Journal, Publication
from regnum_election.publication.encodings import Encodings
from regnum_election.standby.messages import confirmation, parts_of

INTERVAL_S: Final = 0.2
"""Shortest time between two changes for one standby."""

SETTLING_S: Final = 1.5
"""How long a change of many partitions is kept back. Sent at once, each of them was sent two or three times, and on a
machine that all processes share standbys took two fifths of the processor time of a failover."""

MANY_PARTITIONS: Final = 200
"""What counts as many."""


class StandbyPublisher:
    """All standbys of one reign. Used by the controller's loop only."""

    def __init__(self, *, epoch: ControllerEpoch, journal: Journal, clock: Clock) -> None:
        """Only assigns.

        Args:
            epoch: the reign.
            journal: what was published in it, and what it goes on from.
            clock: source of time.
        """
        self._epoch = epoch
        self._journal = journal
        self._clock = clock
        self._encodings: Final = Encodings(journal, epoch, lambda publication: parts_of(publication, epoch))
        self._waiting: dict[asyncio.Event, None] = {}
        self._closed = False

    @property
    def encodings(self) -> int:
        """Changes that were encoded, whole or in part."""
        return self._encodings.count

    def wake(self) -> None:
        """There may be a new version."""
        for event in self._waiting:
            event.set()

    def close(self) -> None:
        """The reign is over: whoever follows hears so."""
        self._closed = True
        self._encodings.release()
        self.wake()

    async def follow(self, epoch: ControllerEpoch, version: int) -> AsyncGenerator[bytes, None]:
        """Encoded parts for one standby, without end. Raises RegnumError NOT_CONTROLLER when the reign is over.

        Args:
            epoch: controller epoch of the picture that it holds.
            version: version of that picture; 0 when it holds none.
        """
        position = self._known(PictureVersion(epoch, version))
        if position != NO_PICTURE:
            yield confirmation(epoch, version)
        moved = asyncio.Event()
        self._waiting[moved] = None
        try:
            while True:
                moved.clear()
                self._check()
                publication = self._journal.next_for(position)
                if publication is None:
                    await moved.wait()
                    continue
                if position != NO_PICTURE and _has_many(publication):
                    await self._clock.sleep(SETTLING_S)
                    self._check()
                    publication = self._journal.next_for(position) or publication
                shared = self._encodings.of(publication)
                number = 0
                while (part := shared.part(number)) is not None:
                    yield part
                    self._check()
                    number += 1
                    # One part in a turn of the loop, however many standbys there are (safety rule S22).
                    await asyncio.sleep(0)
                position = PictureVersion(self._epoch, shared.to_version)
                del publication, shared
                await self._clock.sleep(INTERVAL_S)
        finally:
            self._waiting.pop(moved, None)

    def _check(self) -> None:
        if self._closed:
            raise RegnumError(errors_pb2.ERROR_CODE_NOT_CONTROLLER, "the reign is over; follow the next controller")

    def _known(self, position: PictureVersion) -> PictureVersion:
        """The version from which changes may be sent; that of no picture: everything has to be."""
        if position.epoch == self._epoch and 0 < position.number <= self._journal.version:
            return position
        base = self._journal.base
        return position if base is not None and position == base.position else NO_PICTURE


def _has_many(publication: Publication) -> bool:
    """Whether it changes many partitions."""
    numbers = 0
    for _, some in publication.numbers():
        numbers += len(some)
        if numbers > MANY_PARTITIONS:
            return True
    return False
