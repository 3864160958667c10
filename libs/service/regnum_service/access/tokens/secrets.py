"""The secrets that prove tokens, from files that the process' user and its own group alone may read."""

import os
from pathlib import Path
from typing import Final

from regnum_model.delegation_tokens import SECRET_BYTES_MIN, Secrets

from regnum_service.errors import ExitStatus, StartRefusedError
from regnum_service.tls.private_files import is_exposed

SECRET_BYTES_MAX: Final = 4_096
"""A larger file is something else."""

_HOW: Final = "make one with: head -c 64 /dev/urandom | base64 > FILE; chmod 600 FILE"


def read_secrets(first: Path | None, other: Path | None) -> Secrets | None:
    """The secrets; None where there is none. Raises StartRefusedError, which says nothing of what is in the files.

    Args:
        first: file of the secret that makes tokens and proves them.
        other: file of another one that proves them, while one replaces the other; None: there is none.
    """
    if first is None:
        if other is not None:
            raise _refused("--delegation-token-other-secret-file stands alone; give --delegation-token-secret-file too")
        return None
    return Secrets(_read(first), *(() if other is None else (_read(other),)))


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            exposed = is_exposed(os.fstat(file.fileno()))
            secret = file.read(SECRET_BYTES_MAX + 1).strip()
    except OSError as error:
        raise _refused(f"the secret of tokens cannot be read from {path}: {error.strerror}; {_HOW}") from None
    if exposed:
        raise _refused(
            f"others than its owner and this process' own group may read or write {path}; chmod 600, and a new secret"
            " if they did"
        )
    if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
        raise _refused(
            f"{path} is no secret of {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes; {_HOW}",
        )
    return secret


def _refused(message: str) -> StartRefusedError:
    return StartRefusedError(message, exit_status=ExitStatus.WRONG_USE)
