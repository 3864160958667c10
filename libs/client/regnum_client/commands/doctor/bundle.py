"""`regnum doctor --bundle`: what a report of a fault needs, in one file. No secrets, and no records.

What is packed is what commands show: findings, health, figures, topics, groups with their lag, settings (secret ones
without their values), events, and the last of the logs of processes of this machine. User names and passwords of URLs
are left out of all of it.
"""

import contextlib
import io
import json
import re
import tarfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from regnum_service.errors import RegnumError, StartRefusedError
from regnum_telemetry.build import this_build

from regnum_client.admin.admin import Admin
from regnum_client.commands.doctor.findings import Finding, Gathered, as_row
from regnum_client.commands.local import process_rows
from regnum_client.commands.looking.event_words import document_of
from regnum_client.commands.status.command import assess
from regnum_client.commands.status.shown import document

LOG_BYTES: Final = 256 * 1024
"""Of the end of each log."""
EVENTS_MAX: Final = 1000
"""The newest."""
_CREDENTIALS: Final = re.compile(r"(?<=://)(?:\\.|[^/\s\"\\])+@")
"""Name and password in a URL, up to the last ``@``; what is escaped in JSON may be part of it."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{86}")
"""What proves a delegation token."""
CLIENT_ID: Final = "regnum-doctor"


def without_secrets(text: str) -> str:
    """The text without what opens a door.

    >>> without_secrets("store etcd://root:secret@h:2379/regnum answers")
    'store etcd://***@h:2379/regnum answers'
    """
    return _TOKEN.sub("***", _CREDENTIALS.sub("***@", text))


async def write_bundle(
    path: Path,
    gathered: Gathered,
    findings: Sequence[Finding],
    *,
    data_dir: Path | None,
    bootstrap: str | None,
    timeout_s: float,
) -> None:
    """Write a bundle, with mode 0600. What cannot be asked for is named in it. Raises OSError."""
    rows = process_rows(gathered.status.processes)
    documents: dict[str, Any] = {
        "findings.json": [as_row(finding) for finding in findings],
        "build.json": {"client": this_build(), "made_unix_ms": time.time_ns() // 1_000_000},
        "status.json": document(rows, gathered.status, assess(rows, gathered.status)[-1]),
        "lags.json": _or_message(
            gathered.lags
            if isinstance(gathered.lags, RegnumError)
            else {name: asdict(lag) for name, lag in gathered.lags.items()}
        ),
        **await _asked(bootstrap, timeout_s),
    }
    texts = {
        name: json.dumps(content, indent=1, default=str, ensure_ascii=False) for name, content in documents.items()
    }
    if gathered.status.processes:
        texts |= _logs(data_dir, [one.name for one in gathered.status.processes])
    _pack(path, texts)


async def _asked(bootstrap: str | None, timeout_s: float) -> dict[str, Any]:
    try:
        async with Admin(bootstrap, timeout_s=timeout_s, client_id=CLIENT_ID) as admin:
            return {
                "topics.json": await _or_error(_topics(admin)),
                "settings.json": await _or_error(_settings(admin)),
                "events.json": await _or_error(_events(admin)),
            }
    except RegnumError as error:
        return {"cluster.json": error.message}


async def _or_error(call: Any) -> Any:
    try:
        return await call
    except RegnumError as error:
        return error.message


async def _topics(admin: Admin) -> list[dict[str, Any]]:
    return [one._asdict() async for page in admin.summarize_topics() for one in page]


async def _settings(admin: Admin) -> dict[str, dict[str, Any]]:
    return {
        str(resource): {entry.name: "***" if entry.sensitive else entry.value for entry in entries}
        if not isinstance(entries, Exception)
        else {"error": entries.message}
        for resource, entries in (await admin.describe_configs()).items()
    }


async def _events(admin: Admin) -> list[dict[str, Any]]:
    return [document_of(event) for event in await admin.last_events(limit=EVENTS_MAX)]


def _or_message(value: Mapping[str, Any] | RegnumError) -> Any:
    return value.message if isinstance(value, RegnumError) else value


def _logs(data_dir: Path | None, names: Sequence[str]) -> dict[str, str]:
    from regnum_local.controlling import log_of  # noqa: PLC0415 - only for a cluster of this machine

    texts: dict[str, str] = {}
    for name in names:
        with contextlib.suppress(StartRefusedError), log_of(data_dir, name).open("rb") as log:
            log.seek(max(0, log.seek(0, 2) - LOG_BYTES))
            texts[f"logs/{name}.log"] = log.read().decode("utf-8", errors="replace")
    return texts


def _pack(path: Path, texts: Mapping[str, str]) -> None:
    with path.open("wb") as file:
        path.chmod(0o600)
        with tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, text in texts.items():
                content = without_secrets(text).encode("utf-8", errors="replace")
                member = tarfile.TarInfo(f"regnum-doctor/{name}")
                member.size, member.mode, member.mtime = len(content), 0o600, int(time.time())
                archive.addfile(member, io.BytesIO(content))
