"""The rule for topic names (Kafka's: ``org.apache.kafka.common.internals.Topic``)."""

import re
from typing import Final

MAX_NAME_LENGTH: Final = 249
"""Characters; leaves room for ``-<partition>`` in a file name of 255."""

OFFSETS_TOPIC: Final = "__consumer_offsets"
"""The internal topic of consumer groups. Brokers write it; clients may read it."""

TRANSACTIONS_TOPIC: Final = "__transaction_state"
"""The internal topic of transactions. There are none yet: nobody writes it."""

TRACES_TOPIC: Final = "__traces"
"""Topic of spans (``regnum failovers publish``). No process of a cluster relies on it: clients write it."""

INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
"""Topics that brokers create, write and rely on: clients may read them, and not change them in any way."""

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


class InvalidTopicNameError(ValueError):
    """The name breaks the rule; the message says which part of it and what is allowed."""


def check_topic_name(name: str) -> None:
    """Raise InvalidTopicNameError unless ``name`` may be a topic's name."""
    if not name:
        raise InvalidTopicNameError("a topic name must not be empty")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopicNameError(f"a topic name has at most {MAX_NAME_LENGTH} characters; this one has {len(name)}")
    if name in {".", ".."}:
        raise InvalidTopicNameError('a topic must not be named "." or ".."')
    if _LEGAL.fullmatch(name) is None:
        raise InvalidTopicNameError(f"topic name {name!r} has characters other than [a-zA-Z0-9._-]")
