"""Names from outside as names of files: client ids, and whatever else somebody else has chosen. Pure.

Goals: two names never share a file; a plain name is its own; no name leaves its folder, is hidden, or means anything to
a shell, a glob pattern or a URL. Spark passes over files that begin with ``_`` or ``.``, and a colon ends its job.

Form: ASCII letters, digits, ``.``, ``_`` and ``-`` stand for themselves, the last three not at the beginning; any other
byte of the UTF-8 is ``~`` and two hexadecimal digits, and no name at all is ``~``. A name that would be longer than
LENGTH_MAX is cut, with ``~~`` and a digest of the whole behind it; others can be read back.

Example: ``team/billing`` is ``team~2Fbilling``, ``_billing`` is ``~5Fbilling``, ``worker:1`` is ``worker~3A1``.
"""

import re
from hashlib import sha256
from typing import Final

LENGTH_MAX: Final = 180
"""Bytes of an encoded name: file systems take 255 of a file's, and others want to add to it."""

_DIGEST_LENGTH: Final = 32
_OTHER: Final = re.compile(rb"^[._-]|[^A-Za-z0-9._-]")
_CUT: Final = re.compile(r"~[0-9A-F]?\Z")


def file_name(name: str) -> str:
    """A name as that of a file, or as the beginning of it."""
    # A lone surrogate stands for a byte that is no UTF-8, as in arguments of a command line.
    data = name.encode("utf-8", "surrogatepass")
    encoded = _OTHER.sub(lambda match: b"~%02X" % match[0][0], data).decode("ascii") or "~"
    if len(encoded) <= LENGTH_MAX:
        return encoded
    digest = sha256(data).hexdigest()[:_DIGEST_LENGTH]
    return f"{_CUT.sub('', encoded[: LENGTH_MAX - len(digest) - 2])}~~{digest}"
