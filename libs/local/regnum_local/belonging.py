"""Which cluster a folder belongs to: what its brokers wrote into their log directories when they first registered."""

from pathlib import Path

from regnum_local.files import read_json


def clusters_in(data_dir: Path) -> frozenset[str]:
    """Ids of the clusters whose records lie in the folder of a cluster: one of them, none before the first start.

    A directory that cannot be read names none here; its broker says what is wrong with it.
    """
    return frozenset(found for path in data_dir.glob("broker-*/meta.json") if (found := _cluster_in(path)) is not None)


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
