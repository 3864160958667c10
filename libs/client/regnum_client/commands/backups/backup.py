"""`regnum backup`: the store's tree into a file, or to who reads."""

from collections.abc import Callable, Mapping
from importlib.metadata import version
from urllib.parse import urlsplit

from regnum_coordination.backup.taking import take_backup
from regnum_coordination.port import Store
from regnum_service.clock import SystemClock

from regnum_client.commands.backups.files import Target


async def back_up(
    store: Store, url: str, name: str, file: Target, progress: Callable[[int], None]
) -> Mapping[str, object]:
    """Take a backup; what there is to say of it.

    Args:
        store: an open session.
        url: of the store.
        name: what people call the file.
        file: where it goes.
        progress: told how many nodes there are by now.

    Raises OSError, and what ``take_backup`` raises: there is no file then.
    """
    try:
        taken = await take_backup(
            store,
            kind=urlsplit(url).scheme,
            regnum=version("regnum"),
            wall_ms=SystemClock().wall_ms,
            begin=file.begin,
            progress=progress,
        )
        file.finish()
    finally:
        file.abandon()
    header = taken.header
    return {
        "file": name,
        "cluster_id": header.cluster_id,
        "store": header.store,
        "one_moment": header.one_moment,
        "nodes": taken.nodes,
        "topics": taken.topics,
        "tokens": taken.tokens,
        "processes": taken.processes,
        "brokers": taken.brokers,
        "bytes": taken.bytes,
    }
