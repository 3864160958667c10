"""Where traces come from and where results go: a folder, a folder for each run, or a bucket. Around Spark."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from regnum_failover import runs
from regnum_failover.local_files import SUFFIX, found_at, readable
from regnum_failover.objects.address import BucketAddress, is_bucket, parse
from regnum_failover.objects.fetching import Fetching, Limits, NoTracesError
from regnum_failover.objects.leaving import clear, leave
from regnum_failover.objects.store import ObjectStore, StoreError

Opened = Callable[[BucketAddress], ObjectStore]
"""Makes the store of a bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """Time, as arguments."""

    now_s: Callable[[], float]
    """Since 1970."""
    monotonic_s: Callable[[], float]
    """For deadlines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """What Spark reads."""

    paths: Sequence[str]
    """Paths, patterns or addresses that Spark knows."""
    named: str
    """Where they are, for people."""
    notes: Sequence[str] = ()
    """What was left out on the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where Spark writes, and what becomes of it."""

    folder: str
    """For Spark."""
    named: str
    """Where it is to be found afterwards."""
    finish: Callable[[str], list[str]]
    """Call it with the report when everything is written; returns the names of old runs that it removed."""


@contextmanager
def traces_of(place: str, opened: Opened, limits: Limits, clocks: Clocks, *, shared: bool = False) -> Iterator[Traces]:
    """Traces for Spark; copies of what is in a bucket, and links, go at the end.

    Args:
        place: a folder, a pattern or an address.
        opened: makes the store of a bucket.
        limits: how much is copied out of one.
        clocks: time.
        shared: whether Spark may read on other machines, which see no folder of temporary files of this one.

    Raises:
        StoreError: a bucket, or it has no traces; likewise a folder.
        AddressError: of a bucket.
        OSError: of a folder.
    """
    if not is_bucket(place):
        with tempfile.TemporaryDirectory(prefix="regnum-links-") as links:
            yield _local(place, None if shared else Path(links))
        return
    address = parse(place)
    with tempfile.TemporaryDirectory(prefix="regnum-traces-") as name:
        fetching = Fetching(opened(address), limits, now_s=clocks.now_s, monotonic_s=clocks.monotonic_s)
        fetched = fetching.run(address.prefix, Path(name))
        yield Traces(
            paths=[f"{name}/*{SUFFIX}"],
            named=str(address),
            notes=(f"{fetched.objects_n:,} objects of {address}, {fetched.bytes_n:,} bytes", *fetched.notes),
        )


def _local(place: str, links: Path | None) -> Traces:
    found = found_at(place)
    if found is None:
        return Traces(paths=[place], named=place)
    files = readable(found, links)
    if not files.paths:
        raise NoTracesError("; ".join([nothing_at(place), *files.notes]))
    return Traces(paths=files.paths, named=place, notes=files.notes)


def nothing_at(place: str) -> str:
    """What is said where there are no traces."""
    return f"there are no traces at {place}; give the folder in which the services wrote *{SUFFIX} files"


@contextmanager
def target_of(
    place: str, opened: Opened, clocks: Clocks, *, each_run: bool, keep_days: float | None, deadline_s: float
) -> Iterator[Target]:
    """Where results go; what is not finished when it ends is not there. Raises StoreError, AddressError or OSError."""
    if is_bucket(place):
        with _bucket(parse(place), opened, clocks, keep_days, deadline_s) as target:
            yield target
    elif each_run:
        with _run_folder(Path(place), clocks, keep_days) as target:
            yield target
    else:
        yield Target(folder=place, named=place, finish=lambda _report: [])


@contextmanager
def _bucket(
    address: BucketAddress, opened: Opened, clocks: Clocks, keep_days: float | None, deadline_s: float
) -> Iterator[Target]:
    store = opened(address)
    name = runs.name_of(clocks.now_s())
    with tempfile.TemporaryDirectory(prefix="regnum-failovers-") as made:
        folder = Path(made)

        def finish(report: str) -> list[str]:
            (folder / runs.REPORT).write_text(report, encoding="utf-8")
            ends_s = clocks.monotonic_s() + deadline_s

            def in_time() -> None:
                if clocks.monotonic_s() >= ends_s:
                    raise StoreError(
                        f"{address}/{name} is not there after {deadline_s:.0f} s, and what is there of it has no "
                        f"{runs.MARK}; give more time (--copy-deadline-s)"
                    )

            leave(store, address, name, folder, in_time=in_time)
            if keep_days is None:
                return []
            return clear(store, address, now_s=clocks.now_s(), keep_days=keep_days)

        yield Target(folder=made, named=f"{address}/{name}", finish=finish)


@contextmanager
def _run_folder(out: Path, clocks: Clocks, keep_days: float | None) -> Iterator[Target]:
    name = runs.name_of(clocks.now_s())
    out.mkdir(parents=True, exist_ok=True)
    folder = out / f"{name}{runs.UNFINISHED}"
    folder.mkdir()

    def finish(report: str) -> list[str]:
        (folder / runs.REPORT).write_text(report, encoding="utf-8")
        runs.publish(folder, out, name)
        return [] if keep_days is None else runs.clear(out, now_s=clocks.now_s(), keep_days=keep_days)

    try:
        yield Target(folder=str(folder), named=str(out / name), finish=finish)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
