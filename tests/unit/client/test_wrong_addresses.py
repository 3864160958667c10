"""Addresses at which no broker answers: it is said why, soon, and again when the time is up."""

import logging
import random
import socket
import time

import pytest
from regnum.types.v1 import errors_pb2
from regnum_client.cluster import WAITING
from regnum_client.cluster.controller_search import ControllerSearch
from regnum_client.cluster.reach.reasons import why_nobody_answers
from regnum_client.cluster.reach.told import TOLD_AFTER_S
from regnum_client.cluster.view import ClusterView
from regnum_model.nodes import Address
from regnum_service.errors import RegnumError, UnansweredError
from regnum_testing.clock import SkippingClock
from regnum_testing.command_here import CommandHere

A, B = Address(host="10.0.0.1", port=9092), Address(host="broker.example", port=9092)
ADVICE = "(check that the process runs and that the address is right)"
CONNECT = "failed to connect to all addresses; last error: "


def unanswered(text: str) -> UnansweredError:
    return UnansweredError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, f"{text} {ADVICE}")


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (f"{CONNECT}UNKNOWN: ipv4:10.0.0.1:9092: Failed to connect to remote host: Connection refused", "refused"),
        (
            "errors resolving broker.example:9092: [field:hostname lookup error:Domain name not found]",
            "cannot be resol",
        ),
        (f"{CONNECT}UNAVAILABLE: ipv4:10.0.0.1:9092: Failed parsing HTTP/2 (Expected SETTINGS frame)", "it wants TLS"),
        (f"{CONNECT}UNAVAILABLE: ipv4:10.0.0.1:9092: recvmsg:Connection reset by peer (104)", "it wants TLS"),
        (f"{CONNECT}UNAVAILABLE: ipv4:10.0.0.1:9092: Socket closed", "it wants TLS"),
        (f"{CONNECT}UNKNOWN: ipv4:10.0.0.1:9092: attempt timed out before receiving SETTINGS frame", "says nothing"),
        ("Deadline Exceeded", "no answer in time"),
        ("Ssl handshake failed: CERTIFICATE_VERIFY_FAILED: unable to get local issuer", "no authority of --tls-ca"),
        ("Ssl handshake failed: WRONG_VERSION_NUMBER: Invalid context", "does not speak TLS"),
        ("Method not found!", "no broker's listener"),
        ("something new", "something new"),
    ],
)
def test_what_the_transport_says_is_told_with_the_address_as_somebody_understands_it(said: str, meant: str) -> None:
    error = unanswered(said)
    found = why_nobody_answers({A: error}, error)
    assert isinstance(found, UnansweredError)
    assert found.message.startswith("no broker answers (10.0.0.1:9092: ")
    assert meant in found.message
    assert "--bootstrap" in found.message


def test_addresses_with_one_reason_are_named_together_and_others_apart() -> None:
    refused, unknown = unanswered("Connection refused"), unanswered("errors resolving x")
    message = why_nobody_answers({A: refused, B: unknown}, unknown).message
    assert "10.0.0.1:9092: nothing listens there" in message
    assert "broker.example:9092: the name is not known" in message
    assert (
        "10.0.0.1:9092, broker.example:9092: nothing" in why_nobody_answers({A: refused, B: refused}, refused).message
    )


def test_what_a_broker_says_counts_for_more_than_that_others_are_not_reached() -> None:
    said = RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "has not heard from a controller yet")
    assert why_nobody_answers({A: said, B: unanswered("Connection refused")}, unanswered("late")) is said
    assert why_nobody_answers({}, said) is said


async def test_a_command_says_within_seconds_what_it_tries_and_goes_on_until_its_time_is_up() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        began_s = time.monotonic()
        ran = await CommandHere(address)("topics", "list", "--timeout", str(TOLD_AFTER_S + 0.7))
    assert time.monotonic() - began_s > TOLD_AFTER_S + 0.6
    first, last = ran.err.splitlines()
    said = f"no broker answers ({address}: nothing listens there (connection refused))"
    assert first.startswith(said)
    assert first.endswith("Trying on")
    assert last.startswith(f"regnum: {said}")
    assert ran.status == 5


class NoController:
    """A picture in which nobody is the controller."""

    def __init__(self, clock: SkippingClock) -> None:
        self._clock = clock
        self.view = ClusterView()

    async def newer_than(self, _moment_s: float, *, timeout_s: float) -> None:
        """Nothing new, after a while."""
        self._clock.skipped_s += 1.5


async def test_a_search_for_a_controller_that_takes_long_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = SkippingClock()
    search = ControllerSearch(NoController(clock), clock=clock, chance=random.Random(1), timeout_s=9.0)  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING, logger=WAITING), pytest.raises(RegnumError, match="no controller answers"):
        await search.address()
    (told,) = [one.getMessage() for one in caplog.records if one.name == WAITING]
    assert "no controller answers (the brokers know of none)" in told
