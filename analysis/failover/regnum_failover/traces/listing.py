"""The files of a place: of a folder, a pattern, or a bucket."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Final

from regnum_insight.spans.intake import SUFFIX, files_below

from regnum_failover.objects.address import BucketAddress
from regnum_failover.objects.selection import Selection, select
from regnum_failover.objects.store import NoTracesError, ObjectStore, StoreError
from regnum_failover.traces.plan import TraceFile

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What there is to read."""

    files: Sequence[TraceFile]
    """At least one."""
    notes: Sequence[str] = ()
    """What was left out, a sentence each."""


def in_folder(place: str) -> Listing:
    """Files of a folder and of all below it, or of what a pattern matches. Raises NoTracesError, OSError."""
    files = [
        TraceFile(str(file.absolute()), file.stat().st_size) for path in found_at(place) for file in files_below(path)
    ]
    if not files:
        if _URL.match(place):
            raise NoTracesError(f"{place} is neither a folder nor a bucket; write s3://BUCKET/PREFIX, or a path")
        raise NoTracesError(nothing_at(place))
    return Listing(files=files)


def found_at(place: str) -> list[Path]:
    """The folder or file of that name, or what a pattern matches."""
    # What is there under just that name is no pattern.
    return [Path(place)] if os.path.exists(place) else [*map(Path, sorted(glob(place)))]  # noqa: PTH110, PTH207


def in_bucket(store: ObjectStore, address: BucketAddress, *, now_s: float, days: float) -> Listing:
    """Objects of traces that were written in the last ``days``. Raises NoTracesError, StoreError."""
    chosen = select(store.objects(address.prefix), since_s=now_s - days * 86_400)
    if not chosen.kept:
        raise NoTracesError(_none(chosen, address, days))
    told = [
        (chosen.older_n, f"are older than {days:g} days; left out"),
        (chosen.others_n, "are no OTLP by their names (.json, .jsonl or .binpb, also with .gz or .zst); left out"),
    ]
    files = [TraceFile(found.key, found.size) for found in chosen.kept]
    size = sum(file.size for file in files)
    return Listing(
        files=files,
        notes=(
            f"{len(files):,} objects of {address}, {size:,} bytes",
            *(f"{count:,} objects {what}" for count, what in told if count),
        ),
    )


def nothing_at(place: str) -> str:
    """What is said where there are no traces."""
    return f"there are no traces at {place}; give the folder in which the services wrote *{SUFFIX} files"


def _none(chosen: Selection, address: BucketAddress, days: float) -> str:
    where = f"below {address.prefix}/" if address.prefix else "in the bucket"
    if chosen.older_n:
        return f"there are no traces of the last {days:g} days {where}; {chosen.older_n:,} objects are older (--days)"
    if chosen.others_n:
        return (f"there are no traces {where}: {chosen.others_n:,} objects, and no name that ends in .json, .jsonl or "
                ".binpb, or these with .gz or .zst; have the collector write otlp_json")  # fmt: skip
    return f"there are no traces {where}: no object at all"


def store_of(address: BucketAddress, environment: Mapping[str, str], timeout_s: float) -> ObjectStore:
    """The store that the ``AWS_*`` variables name. Raises StoreError."""
    try:
        # Only a bucket needs the package.
        from regnum_failover.objects.s3 import S3ObjectStore  # noqa: PLC0415
    except ModuleNotFoundError:
        raise StoreError("obstore is not installed; install it with: pip install 'regnum[s3]'") from None
    return S3ObjectStore(address, environment, timeout_s=timeout_s)
