"""Asks for everything that `regnum doctor` looks at."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from regnum_service.errors import RegnumError
from regnum_service.tls.files import TlsFiles

from regnum_client.admin.admin import Admin
from regnum_client.admin.describing.quota_usage import ClientUsage
from regnum_client.cluster.security.channels import tls_files
from regnum_client.commands.doctor.findings import Certificate, Gathered
from regnum_client.commands.groups.lags import Lag, lags_by_group
from regnum_client.commands.status.asking import Found, find

PARTITIONS_MAX: Final = 1000
"""Unhealthy partitions that the controller is asked to name."""
CLIENT_ID: Final = "regnum-doctor"


async def gather(data_dir: Path | None, bootstrap: str | None, *, timeout_s: float, lag_max: int) -> Gathered:
    """Ask. What does not answer is a finding; raises StartRefusedError when no cluster is known.

    Args:
        data_dir: folder of a cluster of this machine; None: that of the last `regnum up`, unless there is a bootstrap.
        bootstrap: brokers to begin with.
        timeout_s: how long each is waited for.
        lag_max: records that a group may be behind.
    """
    status = await find(data_dir, bootstrap, timeout_s=timeout_s, partitions_max=PARTITIONS_MAX)
    brokers = brokers_of(status, bootstrap)
    lags, usages = await _of_brokers(brokers, timeout_s)
    return Gathered(
        status=status,
        lags=lags,
        usages=usages,
        certificates=certificates_of(tls_files(brokers, None), time.time()),
        lag_max=lag_max,
    )


def brokers_of(status: Found, bootstrap: str | None) -> str | None:
    """Where to ask brokers: where those of this machine's cluster are, or as was said.

    Both are known where a folder was named beside a bootstrap, or a profile. One cluster is meant, that of the folder.
    """
    here = [str(one.addresses["client"]) for one in status.processes if one.role.value == "broker"]
    return ",".join(here) or bootstrap


async def _of_brokers(
    bootstrap: str | None, timeout_s: float
) -> tuple[Mapping[str, Lag] | RegnumError, Mapping[int, Sequence[ClientUsage] | RegnumError] | RegnumError]:
    try:
        async with Admin(bootstrap, timeout_s=timeout_s, client_id=CLIENT_ID) as admin:
            return await asyncio.gather(_lags(admin), _usages(admin))
    except RegnumError as error:
        return error, error


async def _lags(admin: Admin) -> Mapping[str, Lag] | RegnumError:
    try:
        return await lags_by_group(admin)
    except RegnumError as error:
        return error


async def _usages(admin: Admin) -> Mapping[int, Sequence[ClientUsage] | RegnumError] | RegnumError:
    try:
        return await admin.describe_client_usage()
    except RegnumError as error:
        return error


def certificates_of(files: TlsFiles | None, now_unix_s: float) -> list[Certificate]:
    """The certificates that this client uses, and for how long they are valid: of a file with several, the shortest."""
    paths = [] if files is None else [one for one in (files.ca, files.certificate) if one is not None]
    return [_certificate(path, now_unix_s) for path in paths]


def _certificate(path: Path, now_unix_s: float) -> Certificate:
    try:
        from cryptography import x509  # noqa: PLC0415 - a client is installed without it
    except ImportError:
        return Certificate(path=str(path), valid_s=None, reason="cryptography is not installed (regnum[services])")
    try:
        ends = [one.not_valid_after_utc.timestamp() for one in x509.load_pem_x509_certificates(path.read_bytes())]
    except (OSError, ValueError) as error:
        return Certificate(path=str(path), valid_s=None, reason=str(error))
    return Certificate(path=str(path), valid_s=min(ends) - now_unix_s)
