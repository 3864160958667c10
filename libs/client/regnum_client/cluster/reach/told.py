"""Tells that something is waited for, before the time is up: who gave a wrong address is to know it at once."""

import logging
from typing import Final

TOLD_AFTER_S: Final = 2.0
"""A change of leader or controller is over by then."""

LOGGER: Final = "regnum_client.waiting"
"""Logger of these lines; the command shows them on stderr."""

_LOG: Final = logging.getLogger(LOGGER)


def tell(message: str) -> None:
    """Say why it takes so long; it is tried again until the time is up."""
    _LOG.warning("%s. Trying on", message)
