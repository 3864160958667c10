"""What to send to a broker that has a given version (safety rule S17).

Goals: a broker that lags gets one change that takes it to the present, whatever it missed; brokers that lag alike get
the very same bytes; memory does not grow with brokers.

Algorithm: the line of versions says by name what a broker lacks, and values come from the present image. Brokers a few
versions apart are taken as if they were where the farthest of them is: how far back is rounded, so that for each
version there are as many different payloads as the distance has binary digits, and each is at most twice as long as it
had to be. A full picture is used again while it is not far behind, followed by what changed since.

Example: at version 1000, brokers at 996, 997 and 998 get (996 to 1000), (996 to 1000), (998 to 1000).
"""

from dataclasses import dataclass
from typing import Final

from regnum_model.ids import BrokerEpoch
from regnum_model.picture_line import NO_PICTURE, News, PictureLine, PictureVersion

from regnum_metadata.payload import Payload

FULL_REUSED: Final = 256
"""Versions that a full picture may be behind and still be sent, followed by what changed since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedInterval:
    """A payload that has to be made: from this version to the present one."""

    start: PictureVersion
    """Where it begins."""
    last: int
    """Last number of that epoch on the line."""
    news: News
    """Names of what changed since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedFull:
    """A full picture of the present version has to be made."""


class Intervals:
    """The line of the image, and what was made for its present version. Changed in place, by its owner only."""

    def __init__(self) -> None:
        self.line: Final = PictureLine(NO_PICTURE)
        """The line, for who reads it too."""
        self._made: dict[PictureVersion, Payload] = {}
        self._full: Payload | None = None

    @property
    def head(self) -> PictureVersion:
        """The present version."""
        return self.line.head

    def restarted(self, at: PictureVersion) -> None:
        """The image is another one, and nothing is known of the difference."""
        self.line.restart(at)
        self._made.clear()
        self._full = None

    def extended(self, to: PictureVersion, news: News, *, base: int | None) -> None:
        """The image changed; see ``PictureLine.extend``."""
        self.line.extend(to, news, base=base)
        self._made.clear()
        if self._full is not None and (
            self._full.controller_epoch != to.epoch or to.number - self._full.to_version > FULL_REUSED
        ):
            self._full = None

    def made(self, payload: Payload) -> None:
        """A payload that was wanted; forgotten if it does not lead to the present version any more."""
        if payload.to != self.line.head:
            return
        if payload.from_version == 0:
            self._full = payload
        else:
            epoch = payload.controller_epoch if payload.base is None else payload.base.epoch
            self._made[PictureVersion(epoch, payload.from_version)] = payload

    def next_for(
        self, receiver: BrokerEpoch, position: PictureVersion, newest: int
    ) -> Payload | WantedInterval | WantedFull | None:
        """What a broker needs next; None when that is nothing.

        What was made before the broker registered does not count: it would refuse that (safety rule S18).

        Args:
            receiver: its broker epoch.
            position: the version that it has.
            newest: highest broker epoch of the image; below the receiver's, the image does not know it (any more), and
                nothing is for it.
        """
        head = self.line.head
        if head in {position, NO_PICTURE} or newest < receiver:
            return None
        if position.epoch == head.epoch and position.number > head.number:
            # Another process has told it more than this one knows yet, or it talks nonsense: it is sent nothing.
            return None
        start = self.line.rounded(position)
        known = self._made.get(start)
        if known is not None:
            return known
        news = self.line.since(start)
        if news is not None:
            return WantedInterval(start=start, last=self.line.last_of(start.epoch), news=news)
        full = self._full
        if full is not None and full.max_broker_epoch >= receiver and self.line.reaches(full.to):
            return full
        return WantedFull()
