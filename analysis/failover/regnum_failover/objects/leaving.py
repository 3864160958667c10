"""Leaves a folder of results in a bucket, and takes old ones away.

A bucket knows no folders and no renaming, so that nothing comes into it at once but one object. Each run has a folder
of its own name, nothing in it is ever replaced, and its mark is written last: a folder with the mark is whole.
"""

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from regnum_failover.objects.address import BucketAddress
from regnum_failover.objects.store import ObjectStore, StoreError
from regnum_failover.runs import MARK, expired

THREADS = 8


def leave(store: ObjectStore, address: BucketAddress, name: str, folder: Path, *, in_time: Callable[[], None]) -> None:
    """Write the files of a folder as run ``name``, and the mark when they are all there. Raises StoreError.

    ``in_time`` raises StoreError when there is no time left; it is asked before each file.
    """
    if next(store.objects(address.key(name)), None) is not None:
        raise StoreError(f"{address}/{name} is there already: two runs began in one second; run it again")
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    names = {path: path.relative_to(folder).as_posix() for path in files}

    def write(path: Path) -> None:
        in_time()
        store.write(address.key(name, names[path]), path)

    with ThreadPoolExecutor(THREADS, "leave") as pool:
        futures = [pool.submit(write, path) for path in files if names[path] != MARK]
        errors = [error for future in futures if (error := future.exception()) is not None]
    if errors:
        raise errors[0]
    whole = {"files": [{"name": names[path], "bytes": path.stat().st_size} for path in files]}
    store.write(address.key(name, MARK), json.dumps(whole, indent=2).encode())


def clear(store: ObjectStore, address: BucketAddress, *, now_s: float, keep_days: float) -> list[str]:
    """Remove runs that are too old; returns their names. Raises StoreError."""
    gone = expired(store.folders(address.prefix), now_s=now_s, keep_days=keep_days)
    for name in gone:
        keys = [found.key for found in store.objects(address.key(name))]
        for key in _mark_first(keys, address.key(name, MARK)):
            store.remove(key)
    return gone


def _mark_first(keys: Iterable[str], mark: str) -> list[str]:
    return sorted(keys, key=lambda key: key != mark)
