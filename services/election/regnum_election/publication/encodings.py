"""Publications in the bytes of the wire, put there once for all who are sent the same.

Everything is kept as long as somebody is being sent it, and of other changes the last KEPT besides: those who follow do
not ask in the same moment. Parts are encoded when the first of them wants them.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final
from weakref import WeakValueDictionary

from regnum_model.ids import ControllerEpoch
from regnum_model.picture_line import PictureVersion

from regnum_election.publication.delta_log import Journal, Publication

KEPT: Final = 2
"""Changes whose encoded parts are kept for those that want them a moment later."""


class SharedParts:
    """The encoded parts of one change, for all who are sent it."""

    def __init__(self, parts: Iterator[bytes], to_version: int) -> None:
        self._source = parts
        self._encoded: list[bytes] = []
        self.to_version: Final = to_version
        """Version afterwards."""

    def part(self, number: int) -> bytes | None:
        """Encodes it if nobody has yet; None behind the last."""
        if number == len(self._encoded):
            encoded = next(self._source, None)
            if encoded is None:
                return None
            self._encoded.append(encoded)
        return self._encoded[number]


class Encodings:
    """Of one reign, for one kind of follower. Used by the controller's loop only."""

    def __init__(
        self, journal: Journal, epoch: ControllerEpoch, encode: Callable[[Publication], Iterator[bytes]]
    ) -> None:
        """Only assigns.

        Args:
            journal: where the publications come from.
            epoch: the reign.
            encode: the parts of one, encoded, one after another.
        """
        self._journal = journal
        self._epoch = epoch
        self._encode = encode
        self._shared: WeakValueDictionary[tuple[int, int, ControllerEpoch | None], SharedParts] = WeakValueDictionary()
        self._kept: deque[SharedParts] = deque(maxlen=KEPT)
        self.count = 0
        """Changes that were encoded, whole or in part."""

    def release(self) -> None:
        """Keep nothing that nobody is being sent."""
        self._kept.clear()

    def of(self, publication: Publication) -> SharedParts:
        """The parts of a publication, or of an earlier one of everything that is being sent to somebody."""
        # Whoever comes while everything is being sent to another is sent the same, and then what changed since.
        place = (
            publication.from_version,
            publication.to_version if publication.from_version else 0,
            None if publication.base is None else publication.base.epoch,
        )
        shared = self._shared.get(place)
        if shared is None or not (publication.from_version or self._reaches(shared.to_version)):
            shared = self._shared[place] = SharedParts(self._encode(publication), to_version=publication.to_version)
            if publication.from_version:
                self._kept.append(shared)
            self.count += 1
        return shared

    def _reaches(self, version: int) -> bool:
        """Whether the journal can still say what changed since."""
        publication = self._journal.next_for(PictureVersion(self._epoch, version))
        return publication is None or publication.from_version != 0
