"""Certificates of the connections that stand at a listener: how long they are believed, and streams that end with them.

Constraint: gRPC asks for files when a connection comes; a list of revoked certificates counts for those that stand, so
that it is looked at beside, within ``CHECK_INTERVAL_S`` and a look of the streams.
"""

import asyncio
from typing import Final

from regnum_service.access.authorization import Denials, call_name
from regnum_service.access.identity import caller
from regnum_service.access.streams import LOOK_S, EndingStreams
from regnum_service.access.validity import Certificate, Validity
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError
from regnum_service.tls.files import WatchedFiles


class StandingCertificates:
    """Of one listener. Belongs to its event loop."""

    def __init__(self, files: WatchedFiles, denials: Denials, clock: Clock) -> None:
        """Only assigns.

        Args:
            files: of the listener, with its revocation lists.
            denials: where it is counted and written down whose streams are ended.
            clock: says when.
        """
        self._files: Final = files
        self._denials: Final = denials
        self._clock: Final = clock
        self.validity: Final = Validity(lambda: files.pem.revoked, clock.wall_ms)
        """Until when they are believed."""
        self.streams: Final[EndingStreams[Certificate]] = EndingStreams(
            clock, ends_ms=self.validity.ends_ms, refusal=self._ended
        )
        """Streams that end with them."""

    def _ended(self, certificate: Certificate) -> RegnumError:
        error = self.validity.end_of_stream(certificate)
        self._denials.unauthenticated(caller(), error, call=call_name())
        return error

    async def run(self) -> None:
        """Look, for ever; a task of whoever runs the listener."""
        version = self._files.version
        while True:
            await self._clock.sleep(LOOK_S)
            self.streams.look()
            if self._files.has_lists and self._files.is_due:
                await asyncio.to_thread(self._files.check)
            if self._files.version != version:
                version = self._files.version
                self.streams.all_changed()
