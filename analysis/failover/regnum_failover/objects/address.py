"""Addresses of buckets: ``s3://BUCKET/PREFIX``. Pure."""

import re
from dataclasses import dataclass
from typing import Final

SCHEME: Final = "s3://"
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


class AddressError(Exception):
    """The text is no address of a bucket; it says what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketAddress:
    """A bucket and what all keys in it begin with."""

    bucket: str
    """Its name."""
    prefix: str
    """Parts of keys, joined by slashes, none at either end; empty for the whole bucket."""

    def key(self, *parts: str) -> str:
        """A key below the prefix."""
        return "/".join(part for part in (self.prefix, *parts) if part)

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.prefix}".rstrip("/")


def is_bucket(text: str) -> bool:
    """Whether a place is a bucket, or meant to be one; anything else is a path."""
    return text.startswith(SCHEME)


def parse(text: str) -> BucketAddress:
    """The bucket of an address. Raises AddressError, which says what is wrong with it."""
    bucket, _, rest = text.removeprefix(SCHEME).partition("/")
    if not is_bucket(text) or _BUCKET.fullmatch(bucket) is None:
        raise AddressError(f"{text} names no bucket; write s3://BUCKET/PREFIX, as in s3://traces-of-ours/regnum")
    parts = rest.strip("/").split("/") if rest.strip("/") else []
    if any(part in {"", ".", ".."} for part in parts):
        raise AddressError(f"{text} has an empty part, or one of dots, in its prefix; write s3://BUCKET/PREFIX")
    return BucketAddress(bucket=bucket, prefix="/".join(parts))
