"""Where traces come from and where results go: a folder, a folder for each run, or a bucket. Around Spark."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from regnum_failover import runs
from regnum_failover.objects.address import AddressError, BucketAddress, is_bucket, parse
from regnum_failover.objects.leaving import clear, leave
from regnum_failover.objects.store import ObjectStore, StoreError
from regnum_failover.traces.listing import in_bucket, in_folder
from regnum_failover.traces.options import topic_of
from regnum_failover.traces.plan import parts_of
from regnum_failover.traces.planned import Planned, write_plan

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

    place: str
    """Where they are."""
    plan: str
    """File with what was listed, for ``TracesSource``; empty: the place is a topic."""
    notes: Sequence[str] = ()
    """What was left out on the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where tables are written, and what becomes of them."""

    folder: str
    """For this process."""
    named: str
    """Where it is to be found afterwards."""
    finish: Callable[[Callable[[], str]], list[str]]
    """Call it when everything is written, with what makes the report; returns the names of old runs that it removed."""


@contextmanager
def traces_of(place: str, opened: Opened, clocks: Clocks, *, days: float) -> Iterator[Traces]:
    """What there is at a place, listed once; the files themselves are the executors' to read.

    Args:
        place: a folder, a pattern, an address, or a topic.
        opened: makes the store of a bucket.
        clocks: time.
        days: of a bucket, how old an object may be.

    Raises:
        StoreError: a bucket, or it has no traces; likewise a folder.
        AddressError: of a bucket.
        OSError: of a folder.
    """
    if topic_of(place) is not None:
        yield Traces(place=place, plan="")
        return
    if is_bucket(place):
        address = parse(place)
        listing = in_bucket(opened(address), address, now_s=clocks.now_s(), days=days)
    else:
        listing = in_folder(place)
    with tempfile.TemporaryDirectory(prefix="regnum-traces-") as folder:
        plan = Path(folder) / "plan.json"
        write_plan(Planned(parts=parts_of(listing.files)), plan)
        yield Traces(place=place, plan=str(plan), notes=listing.notes)


@contextmanager
def target_of(
    place: str, opened: Opened, clocks: Clocks, *, each_run: bool, keep_days: float | None, deadline_s: float
) -> Iterator[Target]:
    """Where results go; what is not finished when it ends is not there. Raises StoreError, AddressError or OSError."""
    if is_bucket(place):
        with _bucket(parse(place), opened, clocks, keep_days, deadline_s) as target:
            yield target
    elif "://" in place:
        raise AddressError(f"{place} is neither a folder nor a bucket; write s3://BUCKET/PREFIX, or a path")
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

        def finish(report: Callable[[], str]) -> list[str]:
            (folder / runs.REPORT).write_text(report(), encoding="utf-8")
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

    def finish(report: Callable[[], str]) -> list[str]:
        (folder / runs.REPORT).write_text(report(), encoding="utf-8")
        runs.publish(folder, out, name)
        return [] if keep_days is None else runs.clear(out, now_s=clocks.now_s(), keep_days=keep_days)

    try:
        yield Target(folder=str(folder), named=str(out / name), finish=finish)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
