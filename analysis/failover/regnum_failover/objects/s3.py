"""The port over S3, and whatever else speaks S3 (MinIO, Ceph, ...), by obstore.

Where it is and who we are is said as for any tool of AWS, by the environment: ``AWS_REGION``, ``AWS_ENDPOINT_URL_S3``
or ``AWS_ENDPOINT_URL``, ``AWS_CA_BUNDLE``, and credentials by ``AWS_SHARED_CREDENTIALS_FILE`` (with ``AWS_PROFILE``),
by ``AWS_ACCESS_KEY_ID`` and ``AWS_SECRET_ACCESS_KEY``, by ``AWS_WEB_IDENTITY_TOKEN_FILE`` with ``AWS_ROLE_ARN``, by a
container's or a machine's metadata service. Nothing of it is an argument of the command.
"""

import configparser
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import obstore
from obstore import exceptions
from obstore.store import S3Store

from regnum_failover.objects.address import BucketAddress
from regnum_failover.objects.selection import Found
from regnum_failover.objects.store import ObjectGoneError, StoreError, StoreUnreachableError

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import ClientConfig, S3Config

PIECE_BYTES: Final = 2**20
RETRIES: Final = 3
METADATA_SERVICE: Final = "/latest/(api/token|meta-data)"
"""What the library asks for credentials, at an address of its own, where nothing else says any."""
REASON_CHARS: Final = 300


class S3ObjectStore:
    """One bucket. ``timeout_s``: how long the store may be silent, each of four times."""

    def __init__(self, address: BucketAddress, environment: Mapping[str, str], *, timeout_s: float) -> None:
        """Raises StoreError for settings that make no sense, and asks nobody."""
        endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or ""
        self._where = f"the bucket {address.bucket} at {endpoint or 'AWS'}"
        # One by one: what else speaks S3 often does not know the other way.
        config: S3Config = {"disable_bulk_delete": True}
        if endpoint:
            url = urlsplit(endpoint)
            if url.scheme not in {"http", "https"} or not url.hostname:
                raise StoreError(f"the endpoint {endpoint} is no URL; write AWS_ENDPOINT_URL_S3 as https://HOST[:PORT]")
            config["endpoint"] = endpoint
        if region := environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION"):
            config["region"] = region
        config.update(_credentials(environment))
        client: ClientConfig = {
            "allow_http": endpoint.startswith("http://"),
            "connect_timeout": timedelta(seconds=min(5.0, timeout_s)),
            # Of each read: an object may take as long as it comes at all.
            "read_timeout": timedelta(seconds=timeout_s),
            "timeout": timedelta(hours=1),
        }
        if authorities := environment.get("AWS_CA_BUNDLE"):
            client["root_certificate"] = _bytes(Path(authorities), "AWS_CA_BUNDLE")
        try:
            self._store = S3Store(
                address.bucket,
                config=config,
                client_options=client,
                retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRIES * timeout_s)},
            )
        except exceptions.BaseError as error:
            raise StoreError(f"{self._where} cannot be used: {_short(error)}") from None

    def objects(self, prefix: str) -> Iterator[Found]:
        """Every object below a prefix, page by page."""
        with self._translated("list", prefix):
            for page in obstore.list(self._store, prefix or None, chunk_size=1000):
                for item in page:
                    yield Found(modified_s=item["last_modified"].timestamp(), key=item["path"], size=item["size"])

    def folders(self, prefix: str) -> list[str]:
        """Names right below a prefix that keys go on after."""
        with self._translated("list", prefix):
            found = obstore.list_with_delimiter(self._store, prefix or None)["common_prefixes"]
        return [one.rstrip("/").rpartition("/")[2] for one in found]

    def read(self, key: str, begin: int = 0) -> Iterator[bytes]:
        """An object in pieces."""
        options: GetOptions = {"range": {"offset": begin}} if begin else {}
        with self._translated("read", key):
            for piece in obstore.get(self._store, key, options=options).stream(min_chunk_size=PIECE_BYTES):
                yield bytes(piece)

    def write(self, key: str, content: Path | bytes) -> None:
        """An object, in several parts when it is large."""
        with self._translated("write", key):
            obstore.put(self._store, key, content, max_concurrency=2)

    def remove(self, key: str) -> None:
        """Take an object away."""
        with self._translated("remove", key):
            obstore.delete(self._store, key)

    @contextmanager
    def _translated(self, what: str, key: str) -> Iterator[None]:
        doing = f"cannot {what} {key or 'its keys'} in {self._where}"
        try:
            yield
        except (exceptions.BaseError, FileNotFoundError, PermissionError) as error:
            raise _said(error, doing) from None


_NO_CREDENTIALS: Final = (
    "there are no credentials; mount a file and name it in AWS_SHARED_CREDENTIALS_FILE, or give AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY"
)
_NO_RIGHTS: Final = (
    "no rights; allow s3:ListBucket and s3:GetObject where it reads, and besides s3:PutObject and s3:DeleteObject "
    "where it writes"
)
_NO_ANSWER: Final = (
    "it does not answer; is the address right (AWS_ENDPOINT_URL_S3), does a network policy let it through, is its "
    "certificate known (AWS_CA_BUNDLE)?"
)
MEANINGS: Final[Sequence[tuple[str, str, type[StoreError]]]] = (
    (METADATA_SERVICE, _NO_CREDENTIALS, StoreError),
    ("NoSuchBucket", "there is no such bucket; make it first, or correct its name", StoreError),
    ("AccessDenied", _NO_RIGHTS, StoreError),
    (
        "InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken|AuthorizationHeaderMalformed",
        "the store does not take these credentials, or this region:",
        StoreError,
    ),
    ("error sending request", _NO_ANSWER, StoreUnreachableError),
)
"""What in the library's text means what for whoever runs the job; a sentence that ends with a sign goes before it."""


def _said(error: Exception, doing: str) -> StoreError:
    """The error in our words, as far as there are some for it."""
    for pattern, words, kind in MEANINGS:
        if re.search(pattern, str(error)):
            return kind(f"{doing}: {words}{f' {_short(error)}' if words[-1] in ':?' else ''}")
    if isinstance(error, FileNotFoundError | exceptions.NotFoundError):
        return ObjectGoneError(f"{doing}: it is not there")
    if isinstance(error, PermissionError | exceptions.PermissionDeniedError | exceptions.UnauthenticatedError):
        return StoreError(f"{doing}: {_NO_RIGHTS}")
    return StoreUnreachableError(f"{doing}: {_short(error)}")


def _short(error: Exception) -> str:
    """The error in one line: the library tells its whole history, with what it was made of, over several."""
    text = " ".join(str(error).partition("Debug source:")[0].split())
    return text if len(text) <= REASON_CHARS else f"{text[:REASON_CHARS]}..."


def _credentials(environment: Mapping[str, str]) -> "S3Config":
    """Those of variables or of a file, when they are said; everything else the library looks for itself."""
    if key_id := environment.get("AWS_ACCESS_KEY_ID"):
        told: S3Config = {"access_key_id": key_id, "secret_access_key": environment.get("AWS_SECRET_ACCESS_KEY", "")}
        if token := environment.get("AWS_SESSION_TOKEN"):
            told["session_token"] = token
        return told
    name = environment.get("AWS_SHARED_CREDENTIALS_FILE")
    return _of_file(name, environment) if name else {}


def _of_file(name: str, environment: Mapping[str, str]) -> "S3Config":
    profile = environment.get("AWS_PROFILE") or "default"
    lines = configparser.RawConfigParser()
    try:
        lines.read_string(_bytes(Path(name), "AWS_SHARED_CREDENTIALS_FILE").decode("utf-8"))
        section = lines[profile]
        found: S3Config = {
            "access_key_id": section["aws_access_key_id"],
            "secret_access_key": section["aws_secret_access_key"],
        }
        if token := section.get("aws_session_token"):
            found["session_token"] = token
    except (configparser.Error, KeyError, UnicodeDecodeError):
        # Not the error's own words: it quotes the line, and that may be the secret.
        raise StoreError(
            f"{name} (AWS_SHARED_CREDENTIALS_FILE) has no section [{profile}] with aws_access_key_id and "
            "aws_secret_access_key; write it as `aws configure` does"
        ) from None
    return found


def _bytes(file: Path, variable: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise StoreError(f"{file} ({variable}) cannot be read: {error.strerror}") from None
