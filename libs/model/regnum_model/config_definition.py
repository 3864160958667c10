"""What a setting is: its name, what its values look like, which there are, what it does. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

from regnum_model.nodes import MalformedNodeError

NO_LIMIT: Final = -1
"""Value of a setting that may be without limit, and is (Kafka's)."""

CLEANUP_DELETE: Final = 1
CLEANUP_COMPACT: Final = 2
"""Values of ``cleanup.policy``; the sum of both is both."""
CLEANUP_POLICIES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "delete": CLEANUP_DELETE,
        "compact": CLEANUP_COMPACT,
        "compact,delete": CLEANUP_COMPACT | CLEANUP_DELETE,
        "delete,compact": CLEANUP_COMPACT | CLEANUP_DELETE,
    }
)
"""The same by the words that people write; of two for one value, the first is shown."""

CREATE_TIME: Final = 1
LOG_APPEND_TIME: Final = 2
"""Values of ``message.timestamp.type``."""
TIMESTAMP_TYPES: Final[Mapping[str, int]] = MappingProxyType(
    {"CreateTime": CREATE_TIME, "LogAppendTime": LOG_APPEND_TIME}
)
"""The same by Kafka's words."""

THOUSANDTHS: Final = 1000
"""What a ratio of 1 is held as."""

_WHOLE_NUMBER: Final = re.compile(r"[0-9]{1,16}", re.ASCII)
_RATIO: Final = re.compile(r"([01])(?:\.([0-9]{1,3}))?", re.ASCII)


class ConfigType(Enum):
    """What values look like."""

    INT = "int"
    """Whole numbers."""
    BOOLEAN = "boolean"
    """``true`` or ``false``; held as 1 and 0."""
    RATIO = "double"
    """From 0 to 1, with three digits after the point; held in thousandths."""
    LIST = "list"
    """``delete``, ``compact`` or both; held as ``CLEANUP_POLICIES`` says."""
    TIMESTAMPS = "string"
    """``CreateTime`` or ``LogAppendTime``; held as ``TIMESTAMP_TYPES`` says."""


_WORDS: Final = MappingProxyType(
    {
        ConfigType.BOOLEAN: "true or false",
        ConfigType.RATIO: "a number from 0 to 1, with three digits after the point at most",
        ConfigType.LIST: "delete, compact, or compact,delete",
        ConfigType.TIMESTAMPS: "CreateTime or LogAppendTime",
    }
)
"""What values of each kind may be, where that is the same for all settings of the kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDefinition:
    """One setting."""

    name: str
    """Kafka's name."""
    type: ConfigType = ConfigType.INT
    """What its values look like."""
    low: int = 0
    """Smallest value."""
    high: int = 1
    """Largest value."""
    least: int = 0
    """Smallest value other than 0, where 0 means that there is no limit."""
    unlimited: bool = False
    """Whether -1 is a value, too, and means that there is no limit."""
    default: int
    """Value where neither a topic nor the cluster says one."""
    topic: bool = True
    """Whether a topic may have its own."""
    broker: bool = False
    """Whether it is one of brokers: a broker may have its own, in force at once; the cluster's is for all others."""
    flag: str = ""
    """Flag of the process whose value counts where nobody set one, without the dashes; empty: there is none."""
    doc: str
    """What it does, in a sentence."""

    @property
    def valid_values(self) -> str:
        """The range, in words that follow "is"."""
        if self.type in _WORDS:
            return _WORDS[self.type]
        if self.least:
            return f"0, or a whole number from {self.least} to {self.high}"
        if self.unlimited:
            return f"{NO_LIMIT} (no limit), or a whole number from {self.low} to {self.high}"
        return f"a whole number from {self.low} to {self.high}"

    def parse(self, text: str) -> int:
        """The value that a text means. Raises MalformedNodeError, which names the range."""
        if self.type is ConfigType.BOOLEAN:
            value = {"true": 1, "false": 0}.get(text.lower(), -1)
        elif self.type is ConfigType.LIST:
            value = CLEANUP_POLICIES.get(text.lower().replace(" ", ""), -1)
        elif self.type is ConfigType.TIMESTAMPS:
            value = next((held for words, held in TIMESTAMP_TYPES.items() if words.lower() == text.lower()), -1)
        elif self.type is ConfigType.RATIO:
            value = _thousandths(text)
        elif self.unlimited and text == str(NO_LIMIT):
            return NO_LIMIT
        else:
            value = int(text) if _WHOLE_NUMBER.fullmatch(text) else -1
        if not self.low <= value <= self.high or 0 < value < self.least:
            raise MalformedNodeError(f"{self.name} is {self.valid_values}, not {text[:40]!r}")
        return value

    def format(self, value: int) -> str:
        """The text of a value, as nodes and messages carry it."""
        if self.type is ConfigType.BOOLEAN:
            return "true" if value else "false"
        if self.type in {ConfigType.LIST, ConfigType.TIMESTAMPS}:
            known = CLEANUP_POLICIES if self.type is ConfigType.LIST else TIMESTAMP_TYPES
            return next(words for words, held in known.items() if held == value)
        if self.type is ConfigType.RATIO:
            return f"{value / THOUSANDTHS:g}"
        return str(value)


def _thousandths(text: str) -> int:
    """-1: no such number."""
    found = _RATIO.fullmatch(text)
    return -1 if found is None else int(found[1]) * THOUSANDTHS + int((found[2] or "").ljust(3, "0"))
