"""Settings that contradict one another are refused at the start, with what to give instead."""

from pathlib import Path

import pytest
from pydantic import ValidationError
from regnum_broker.limits.incoming import incoming
from regnum_broker.settings import BrokerSettings

MIB = 1024 * 1024


def settings(**told: int) -> BrokerSettings:
    return BrokerSettings(
        coordination="memory://",
        broker_id=1,
        client_listen="127.0.0.1:1",
        internal_listen="127.0.0.1:2",
        data_dir=Path("data"),
        **told,  # type: ignore[arg-type]
    )


def test_the_largest_message_is_larger_than_the_largest_batch() -> None:
    settings(message_bytes_max=32 * MIB)
    with pytest.raises(ValidationError, match=r"socket-request-max-bytes is 4194304: .* give 8454144 or more"):
        settings(message_bytes_max=8 * MIB, socket_request_max_bytes=4 * MIB)
    settings(message_bytes_max=8 * MIB, socket_request_max_bytes=8_454_144)


def test_four_of_the_largest_messages_can_come_in() -> None:
    with pytest.raises(ValidationError, match=r"queued-max-incoming-bytes is 67108864: .* give 142606336 or more"):
        settings(queued_max_incoming_bytes=64 * MIB)
    told = settings(queued_max_incoming_bytes=142_606_336)
    assert incoming(told.queued_max_incoming_bytes, told.socket_request_max_bytes).messages == 4
