"""Which cluster a folder belongs to: what its brokers wrote into their log directories when they first registered."""

import re
from pathlib import Path
from typing import Final

from regnum_local.files import read_json

_BROKER: Final = re.compile(r"broker-(0|[1-9][0-9]*)", re.ASCII)
"""Not ``broker-1.old``, which may be another cluster's."""


def clusters_in(data_dir: Path) -> frozenset[str]:
    """Ids of the clusters whose records lie in the folder of a cluster: one of them, none before the first start.

    A directory that cannot be read names none here; its broker says what is wrong with it.
    """
    found = (
        _cluster_in(folder / "meta.json") for folder in data_dir.glob("broker-*") if _BROKER.fullmatch(folder.name)
    )
    return frozenset(cluster_id for cluster_id in found if cluster_id is not None)


def _cluster_in(path: Path) -> str | None:
    try:
        value = read_json(path)
    except (OSError, ValueError):
        return None
    match value:
        case {"cluster_id": str(cluster_id)}:
            return cluster_id
        case _:
            return None
