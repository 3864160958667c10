"""The flags of a broker as settings that can be read: never a secret."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import SecretBytes, SecretStr
from pydantic_settings import CLI_SUPPRESS
from regnum.replication.v1 import control_pb2
from regnum_model.configs import BROKER_KEYS, DEFINITIONS

from regnum_broker.configs.values import DEFAULT, FLAG
from regnum_broker.settings import BrokerSettings

SENSITIVE_WORDS: Final = ("password", "secret", "credential", "private_key", "hmac")
"""Words in the name of a flag whose value is never shown, whatever its type."""

DYNAMIC: Final[Mapping[str, str]] = {
    DEFINITIONS[key].flag.replace("-", "_"): key for key in BROKER_KEYS if DEFINITIONS[key].flag
}
"""Settings that have a flag and are changed while the broker runs, by the flag's field."""

READ_ONLY: Final = tuple(
    sorted(
        field
        for field, info in BrokerSettings.model_fields.items()
        if field not in DYNAMIC and info.description != CLI_SUPPRESS
    )
)
"""Fields of the others, but for what is for tests and not shown."""


def given(settings: BrokerSettings) -> dict[str, int]:
    """What was given of the settings that are changed while the broker runs, by their names."""
    return {key: getattr(settings, field) for field, key in DYNAMIC.items() if field in settings.model_fields_set}


def read_only(settings: BrokerSettings) -> Iterator[control_pb2.BrokerSetting]:
    """All other flags, by name."""
    for field in READ_ONLY:
        info = BrokerSettings.model_fields[field]
        value = getattr(settings, field)
        sensitive = is_sensitive(field, value)
        yield control_pb2.BrokerSetting(
            name=field.replace("_", "."),
            value="" if sensitive else _shown(value),
            source=FLAG if field in settings.model_fields_set else DEFAULT,
            read_only=True,
            sensitive=sensitive,
            documentation=info.description or "",
            valid_values=f"what --{field.replace('_', '-')} takes, at the broker's next start",
        )


def is_sensitive(field: str, value: object) -> bool:
    """Whether a flag is a secret, or may carry one: the store's URL may have a password in it."""
    if isinstance(value, SecretStr | SecretBytes) or any(word in field for word in SENSITIVE_WORDS):
        return True
    return isinstance(value, str) and "@" in value and "://" in value


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(map(str, value))
    return str(value)
