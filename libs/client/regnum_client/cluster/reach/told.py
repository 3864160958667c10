"""Tells that something is waited for, before the time is up: who gave a wrong address is to know it at once."""

import logging
from typing import Final

from regnum_client.cluster import WAITING

TOLD_AFTER_S: Final = 2.0
"""A change of leader or controller is over by then."""

_LOG: Final = logging.getLogger(WAITING)


def tell(message: str, waited_s: float) -> bool:
    """Say why it takes so long, if it does; it is tried again until the time is up. Returns whether that was told."""
    if waited_s < TOLD_AFTER_S:
        return False
    _LOG.warning("%s. Trying on", message)
    return True
