"""The port: what the job needs of an object store, and how a store says no."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from regnum_failover.objects.selection import Found


class StoreError(Exception):
    """The store did not do it; the text says why, and what whoever runs the job may do."""


class StoreUnreachableError(StoreError):
    """It did not answer, or not to the end; the same call may succeed later."""


class NoTracesError(StoreError):
    """The store answers, and has none."""


class ObjectGoneError(StoreError):
    """There is no such object any more."""


class ObjectStore(Protocol):
    """One bucket. All calls block, have a deadline of their own and may come from several threads."""

    def objects(self, prefix: str) -> Iterator[Found]:
        """Every object below a prefix, as the store lists them: page by page. Raises StoreError."""
        ...

    def folders(self, prefix: str) -> list[str]:
        """Names of what keys right below a prefix go on with, up to the next slash. Raises StoreError."""
        ...

    def read(self, key: str, begin: int = 0) -> Iterator[bytes]:
        """An object, from a byte on, in pieces of about a megabyte.

        Raises ObjectGoneError or StoreError, also between pieces.
        """
        ...

    def write(self, key: str, content: Path | bytes) -> None:
        """An object, whole or not at all; one that is there is replaced. Raises StoreError."""
        ...

    def remove(self, key: str) -> None:
        """Take an object away, if it is there. Raises StoreError."""
        ...
