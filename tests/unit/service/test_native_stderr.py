"""What libraries in C say on stderr: failed handshakes are counted, a flood fills nothing, last words are not lost."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from regnum_service.native_stderr import LineFile, NativeStderr
from regnum_service.programs import service_environment
from regnum_service.tls.handshakes import HandshakeFailures, failure_of
from regnum_testing.waiting import eventually

BEGIN = b"I1126 22:09:56.106757   11343 ssl_transport_security.cc:2563] Handshake failed with error SSL_ERROR_SSL: "
NO_CERTIFICATE = (
    BEGIN + b"error:100000c0:SSL routines:OPENSSL_internal:PEER_DID_NOT_RETURN_A_CERTIFICATE: Invalid context\n"
)
REFUSED_CALL = b"E1126 22:09:56.093952   11280 server_call.cc:7] Compression algorithm is not enabled\n"
CRASH = b"F1126 22:09:56.093952   11280 party.cc:102] Check failed: a < b\n"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"error:100000c0:SSL routines:OPENSSL_internal:PEER_DID_NOT_RETURN_A_CERTIFICATE", "no_certificate"),
        (
            b"OPENSSL_internal:CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate",
            "certificate_not_trusted",
        ),
        (b"OPENSSL_internal:CERTIFICATE_VERIFY_FAILED: certificate has expired", "certificate_expired"),
        (b"OPENSSL_internal:WRONG_VERSION_NUMBER: Invalid certificate verification context", "not_tls"),
        (b"OPENSSL_internal:TLSV1_ALERT_INTERNAL_ERROR", "ended_by_peer"),
        (b"OPENSSL_internal:SOMETHING_NEW", "other"),
    ],
)
def test_what_grpc_says_of_a_handshake_is_a_reason(said: bytes, reason: str) -> None:
    assert failure_of(BEGIN + said + b"\n") == reason
    assert failure_of(said) is None


class Stderr:
    """A pipe in place of stderr, taken over."""

    def __init__(self, path: Path | None) -> None:
        self._reading, self.descriptor = os.pipe()
        os.set_blocking(self._reading, False)
        self.failures = HandshakeFailures()
        self.native = NativeStderr(LineFile(path), descriptor=self.descriptor, failures=self.failures, period_s=0.01)
        self.native.start()

    def passed_on(self) -> bytes:
        """Since it was last asked."""
        try:
            return os.read(self._reading, 65_536)
        except BlockingIOError:
            return b""

    def counted(self) -> dict[str, float]:
        return {reason: count for (reason,), count in self.failures.read() if count}


@pytest.fixture(params=["file", "memory"])
def stderr(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stderr]:
    made = Stderr(tmp_path / "broker-3.stderr" if request.param == "file" else None)
    yield made
    made.native.close()


async def test_handshakes_are_counted_and_what_is_not_grpcs_is_passed_on(stderr: Stderr) -> None:
    for line in (NO_CERTIFICATE, REFUSED_CALL, b"half a", b" line\n", NO_CERTIFICATE[:40], NO_CERTIFICATE[40:]):
        os.write(stderr.descriptor, line)
    await eventually(lambda: _done(stderr.counted() == {"no_certificate": 2}))
    assert stderr.passed_on() == b"half a line\n"


async def test_a_flood_is_counted_and_fills_nothing(stderr: Stderr, tmp_path: Path) -> None:
    for number in range(1, 6):
        for _ in range(200):
            os.write(stderr.descriptor, NO_CERTIFICATE)
        await eventually(lambda number=number: _done(stderr.counted() == {"no_certificate": 200 * number}))
    await eventually(lambda: _done(all(one.stat().st_size == 0 for one in tmp_path.iterdir())))
    assert stderr.passed_on() == b""


def test_what_a_crash_says_last_is_passed_on_by_the_next_start_and_what_is_left_at_the_end_at_once(
    tmp_path: Path,
) -> None:
    path = tmp_path / "broker-3.stderr"
    path.write_bytes(NO_CERTIFICATE + CRASH)
    stderr = Stderr(path)
    assert stderr.passed_on() == CRASH
    assert stderr.counted() == {}, "the process before counted them"
    os.write(stderr.descriptor, b"at the end\n")
    stderr.native.close()
    assert stderr.passed_on() == b"at the end\n"
    os.write(stderr.descriptor, b"and after it\n")
    assert stderr.passed_on() == b"and after it\n"
    assert list(tmp_path.iterdir()) == []


def test_services_are_started_so_that_grpc_tells_and_somebody_who_looks_sees_it() -> None:
    told = [service_environment({} if said is None else {"GRPC_VERBOSITY": said}) for said in (None, "NONE", "ERROR")]
    assert told == [{"GRPC_VERBOSITY": "INFO"}] * 3
    assert service_environment({"GRPC_VERBOSITY": "DEBUG", "A": "b"}) == {"GRPC_VERBOSITY": "DEBUG", "A": "b"}


async def _done(condition: bool) -> bool:
    return condition
