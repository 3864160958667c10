"""Tables in a folder or a bucket, by the words of a command line."""

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from regnum_failover.objects.address import is_bucket, parse
from regnum_failover.objects.folder import FolderStore
from regnum_failover.objects.store import StoreError
from regnum_failover.tables.ledger import FOLDER, Shelf
from regnum_failover.traces.listing import store_of


def shelf_of(place: str, environment: Mapping[str, str], timeout_s: float) -> Shelf:
    """Where tables lie. Raises AddressError, StoreError."""
    if not is_bucket(place):
        return Shelf(FolderStore(Path(place).absolute()), "")
    address = parse(place)
    return Shelf(store_of(address, environment, timeout_s), address.prefix)


@contextmanager
def alone(place: str) -> Iterator[None]:
    """Keep other runs out of a folder meanwhile; of a bucket that is left to what starts runs.

    Raises StoreError where one is there, OSError.
    """
    if is_bucket(place):
        yield
        return
    lock = Path(place) / FOLDER / ".lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("wb") as file:
        try:
            # It ends with its process, however that dies.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(f"another run writes into {place}; wait for its end") from None
        yield
