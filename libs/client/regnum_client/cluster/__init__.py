"""The cluster as a client sees it: metadata, connections, the controller."""

from typing import Final

WAITING: Final = "regnum_client.waiting"
"""Logger of what is waited for unusually long, and why; the command shows it on stderr."""
