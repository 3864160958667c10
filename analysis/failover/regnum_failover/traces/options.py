"""Options of ``format("regnum_traces")``."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Final

from regnum_insight.spans.growth import Grown, look_at_folder

from regnum_failover.objects.address import BucketAddress, is_bucket, parse
from regnum_failover.objects.selection import select
from regnum_failover.objects.store import ObjectGoneError, ObjectStore
from regnum_failover.tables.ledger import Shelf
from regnum_failover.tables.shelves import shelf_of
from regnum_failover.traces.listing import Listing, found_at, in_bucket, in_folder, store_of
from regnum_failover.traces.pieces import Opened, of_path, of_pieces

DAYS: Final = 30.0
STORE_TIMEOUT_S: Final = 30.0
PREFIX: Final = "topic:"
"""Before the name of a topic, where a folder or a bucket may stand as well."""


def topic_of(place: str) -> str | None:
    """The topic that a place names; None: it is no topic.

    >>> topic_of("topic:__traces"), topic_of("/traces")
    ('__traces', None)
    """
    return place.removeprefix(PREFIX) if place.startswith(PREFIX) else None


@dataclass(frozen=True, slots=True)
class Options:
    """What a reader is told."""

    place: str
    """Folder, pattern or bucket."""
    plan: str | None
    """File with what a driver has listed before; None: it is listed when it is read."""
    days: float
    """Of a bucket, how old an object may be."""
    store_timeout_s: float
    """How long a bucket may be silent."""
    variables: Mapping[str, str]
    """``AWS_*`` variables that were given as options."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "Options":
        """Raises ValueError for what is no place, or no number."""
        if "path" not in options:
            raise ValueError("where are the traces? .load(FOLDER), or .load('s3://BUCKET/PREFIX')")
        return cls(
            place=options["path"],
            plan=options.get("plan"),
            days=float(options.get("days", DAYS)),
            store_timeout_s=float(options.get("store_timeout_s", STORE_TIMEOUT_S)),
            variables={name.upper(): value for name, value in options.items() if name.upper().startswith("AWS_")},
        )

    @property
    def address(self) -> BucketAddress | None:
        """The bucket; None: the place is none. Raises AddressError."""
        return parse(self.place) if is_bucket(self.place) else None

    def store(self, address: BucketAddress) -> ObjectStore:
        """The store of the bucket. Raises StoreError."""
        return store_of(address, {**os.environ, **self.variables}, self.store_timeout_s)

    def look(self, before: Mapping[str, int], now_s: float) -> Mapping[str, Grown]:
        """What there is now, by identity; ``before``: how far it was read. Raises StoreError, AddressError."""
        address = self.address
        if address is None:
            looks = (look_at_folder(path, before) for path in found_at(self.place))
            return {key: file for look in looks for key, file in look.items()}
        chosen = select(self.store(address).objects(address.prefix), since_s=now_s - self.days * 86_400)
        return {found.key: Grown(found.key, found.size, by_line=False) for found in chosen.kept}

    def listing(self, now_s: float) -> Listing:
        """What there is to read. Raises NoTracesError, StoreError, AddressError, OSError."""
        address = self.address
        if address is None:
            return in_folder(self.place)
        return in_bucket(self.store(address), address, now_s=now_s, days=self.days)

    def shelf(self, place: str) -> Shelf:
        """Where tables lie. Raises StoreError, AddressError."""
        return shelf_of(place, {**os.environ, **self.variables}, self.store_timeout_s)

    def opened(self) -> Opened:
        """How files of the place are opened. Raises StoreError."""
        address = self.address
        if address is None:
            return of_path
        store = self.store(address)

        def of_object(key: str, begin: int) -> IO[bytes]:
            return of_pieces(present(store.read(key, begin)))

        return of_object


def present(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """An object that has gone is a file that cannot be read; a store that is away ends the task."""
    try:
        yield from pieces
    except ObjectGoneError as error:
        raise FileNotFoundError(0, "it went away while others were read") from error
