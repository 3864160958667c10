"""How the SDK connects: over TLS with what the caller says, else REGNUM_TLS_*, else the profile of ``regnum up``.

A profile counts only for its own cluster: for who names no bootstrap addresses, or only those that are in it.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import grpc
from regnum.types.v1 import errors_pb2
from regnum_local.profile import Profile, ProfileError, profile_path, read_profile
from regnum_model.nodes import Address
from regnum_service.channel import Channels, Open
from regnum_service.errors import RegnumError
from regnum_service.tls.channels import opener
from regnum_service.tls.files import TlsFiles, TlsFilesError, WatchedFiles

from regnum_client.cluster.bootstrap import VARIABLE

__all__ = ["CA", "CERTIFICATE", "KEY", "TOKEN", "TlsFiles", "channels_to", "tls_files", "with_token"]

CA: Final = "REGNUM_TLS_CA"
CERTIFICATE: Final = "REGNUM_TLS_CERTIFICATE"
KEY: Final = "REGNUM_TLS_KEY"
"""Environment variables with paths of PEM files; any of them switches TLS on."""
TOKEN: Final = "REGNUM_TOKEN_FILE"  # noqa: S105 - the name of the variable
"""Environment variable with the path of a delegation token's credential, which every call shows."""


def channels_to(bootstrap: str | Sequence[str] | None, tls: TlsFiles | None = None) -> Channels:
    """Channels to that cluster; what they are protected with is looked up when the first one is opened.

    Their ``get`` then raises RegnumError INVALID_CONFIG for files that are no use.
    """
    known: Open | None = None

    def open_one(address: Address, addressee: str = "") -> grpc.aio.Channel:
        nonlocal known
        if known is None:
            known = _opener(with_token(tls_files(bootstrap, tls)))
        return known(address, addressee)

    return Channels(open_one)


def with_token(files: TlsFiles | None, environment: Mapping[str, str] | None = None) -> TlsFiles | None:
    """The files, with the token that the environment names unless they have one of their own.

    Raises RegnumError INVALID_CONFIG: a token is shown over TLS only.
    """
    named = (os.environ if environment is None else environment).get(TOKEN)
    if not named or (files is not None and (files.token is not None or files.credential is not None)):
        return files
    if files is None:
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_CONFIG,
            f"{TOKEN} names a delegation token, and the connection has no TLS: others would read it on its way; give"
            f" {CA} and the address of a TLS listener, or unset {TOKEN}",
        )
    return replace(files, token=Path(named))


def tls_files(
    bootstrap: str | Sequence[str] | None, given: TlsFiles | None = None, environment: Mapping[str, str] | None = None
) -> TlsFiles | None:
    """What connections to that cluster are protected with; None: nothing."""
    if given is not None:
        return given
    environment = os.environ if environment is None else environment
    ca, certificate, key = (Path(text) if (text := environment.get(name)) else None for name in (CA, CERTIFICATE, KEY))
    if ca or certificate or key:
        return TlsFiles(ca=ca, certificate=certificate, key=key)
    try:
        profile = read_profile(profile_path(environment))
    except ProfileError:
        # Who needs it for its addresses hears of it there.
        return None
    if (
        profile is None
        or profile.tls is None
        or not profile.is_current()
        or not _is_of(profile, bootstrap or environment.get(VARIABLE))
    ):
        return None
    return TlsFiles(ca=profile.tls.ca, certificate=profile.tls.certificate, key=profile.tls.key)


def _is_of(profile: Profile, bootstrap: str | Sequence[str] | None) -> bool:
    if not bootstrap:
        return True
    addresses = bootstrap.split(",") if isinstance(bootstrap, str) else bootstrap
    return {address.strip() for address in addresses} <= {*profile.bootstrap, *profile.elections}


def _opener(files: TlsFiles | None) -> Open:
    try:
        return opener(None if files is None else WatchedFiles(files))
    except TlsFilesError as error:
        raise RegnumError(errors_pb2.ERROR_CODE_INVALID_CONFIG, f"TLS: {error}") from error
