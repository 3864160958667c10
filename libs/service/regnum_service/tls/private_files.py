"""May others than this process read a file that holds a secret? Pure, but for the question which group this is."""

import os

OTHERS = 0o007
"""Everybody's rights."""
GROUP_CHANGES = 0o030
"""A group's rights to write and execute."""
GROUP_READS = 0o040
"""A group's right to read."""


def is_exposed(file: os.stat_result, *, group: int | None = None) -> bool:
    """Whether others than its owner and this process' own group may read the file, or others than its owner write it.

    Kubernetes mounts a Secret as files of root's that one group may read, which is the process' own (``fsGroup``).

    Args:
        file: what the file system says of it.
        group: the process' own group; None: the effective one. Supplementary groups do not count: they are shared.
    """
    if file.st_mode & (OTHERS | GROUP_CHANGES):
        return True
    return bool(file.st_mode & GROUP_READS) and file.st_gid != (os.getegid() if group is None else group)
