"""Where the cluster is: what the caller says, else REGNUM_BOOTSTRAP, else the profile that ``regnum up`` left."""

import os
from collections.abc import Mapping, Sequence
from typing import Final

from regnum_local.profile import ProfileError, profile_path, read_profile
from regnum_model.nodes import Address, MalformedNodeError

from regnum_client.errors import BootstrapMissingError

VARIABLE: Final = "REGNUM_BOOTSTRAP"


def bootstrap_addresses(
    given: str | Sequence[str] | None, environment: Mapping[str, str] | None = None
) -> tuple[Address, ...]:
    """Addresses of brokers to begin with. Raises BootstrapMissingError."""
    environment = os.environ if environment is None else environment
    text = given if given is not None else environment.get(VARIABLE) or _profile(environment)
    parts = text.split(",") if isinstance(text, str) else list(text or ())
    try:
        addresses = tuple(_address(part.strip()) for part in parts if part.strip())
    except MalformedNodeError as error:
        raise BootstrapMissingError(
            f"bootstrap address {error}; give host:port, several with commas", malformed=True
        ) from None
    if not addresses:
        raise BootstrapMissingError(
            f"no cluster to talk to: start one with `regnum up`, or give --bootstrap host:port or {VARIABLE}",
            nowhere=True,
        )
    return addresses


def _address(text: str) -> Address:
    if "/" in text:
        raise MalformedNodeError(f"{text!r} is not host:port")
    return Address.parse(text)


def _profile(environment: Mapping[str, str]) -> Sequence[str] | None:
    try:
        profile = read_profile(profile_path(environment))
    except ProfileError as error:
        raise BootstrapMissingError(str(error), unreadable=True) from error
    if profile is None:
        return None
    if not profile.is_current():
        raise BootstrapMissingError(
            f"the cluster of the last `regnum up` ({profile.data_dir}) does not run any more: start it again with "
            f"`regnum up --data-dir {profile.data_dir}`, or give --bootstrap host:port"
        )
    return profile.bootstrap
