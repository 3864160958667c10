"""A certificate that has expired or is revoked is believed no more, on connections that stand, too."""

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from regnum.types.v1 import errors_pb2
from regnum_model.principals import Principal
from regnum_service.access.authentication import TOKEN_METADATA, Authentication
from regnum_service.access.authorization import Denials
from regnum_service.access.identity import Caller, calling
from regnum_service.access.validity import Certificate, Validity
from regnum_service.errors import RegnumError
from regnum_service.tls.files import CHECK_INTERVAL_S, TlsFiles, TlsFilesError, WatchedFiles
from regnum_service.tls.revocation import revoked_in
from regnum_service.tls.standing import StandingCertificates
from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Metrics
from regnum_testing.clock import FakeClock, settle
from regnum_testing.waiting import until

NOW = dt.datetime(2026, 11, 26, 12, 0, tzinfo=dt.UTC)
NOW_MS = int(NOW.timestamp() * 1_000)


class Authority:
    """Signs certificates and revocation lists."""

    def __init__(self, name: str = "client CA") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = self._signed(self.name, self.name, NOW + dt.timedelta(days=10), 1)

    def _signed(self, subject: x509.Name, issuer: x509.Name, until: dt.datetime, number: int) -> bytes:
        built = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(self.key.public_key())
            .serial_number(number)
            .not_valid_before(NOW - dt.timedelta(days=1))
            .not_valid_after(until)
        )
        return built.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def leaf(self, number: int = 7, *, seconds: float = 60.0) -> bytes:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ann")])
        return self._signed(subject, self.name, NOW + dt.timedelta(seconds=seconds), number)

    def list(self, *numbers: int, signer: "Authority | None" = None) -> bytes:
        built = x509.CertificateRevocationListBuilder().issuer_name(self.name)
        built = built.last_update(NOW - dt.timedelta(days=2)).next_update(NOW - dt.timedelta(days=1))
        for number in numbers:
            one = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(NOW).build()
            built = built.add_revoked_certificate(one)
        return built.sign((signer or self).key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


AUTHORITY, OTHER = Authority(), Authority("other CA")


class Call:
    """A call as gRPC shows it."""

    def __init__(self, certificate: bytes, token: str = "") -> None:
        self._certificate = certificate
        self._token = token

    def peer(self) -> str:
        return "ipv4:10.0.0.9:5"

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"x509_pem_cert": [self._certificate], "x509_subject": [b"CN=ann"]}

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ((TOKEN_METADATA, self._token),) if self._token else ()


class Tokens:
    def check(self, metadata) -> Principal | None:
        return Principal("alice", token_authenticated=True) if metadata else None


def test_a_call_on_a_standing_connection_is_refused_once_its_certificate_has_expired() -> None:
    now_ms = [NOW_MS]
    validity = Validity(frozenset, lambda: now_ms[0])
    authentication = Authentication(encrypted=True, tokens=Tokens(), validity=validity)
    call = Call(AUTHORITY.leaf(seconds=60))
    assert authentication.caller_of(call).principal == Principal("CN=ann")
    now_ms[0] += 60_000
    assert authentication.caller_of(call).principal == Principal("CN=ann"), "good to its last moment"
    now_ms[0] += 1
    for refused in (call, Call(AUTHORITY.leaf(seconds=60), "alice's")):
        with pytest.raises(RegnumError, match=r"serial number 7\) has expired \(2026-11-26T12:01:00") as caught:
            authentication.caller_of(refused)
        assert caught.value.code == errors_pb2.ERROR_CODE_SASL_AUTHENTICATION_FAILED


def test_a_revoked_certificate_is_its_number_with_its_authority() -> None:
    revoked = revoked_in(AUTHORITY.list(7, 9) + OTHER.list(8), AUTHORITY.certificate + OTHER.certificate)
    authentication = Authentication(encrypted=True, validity=Validity(lambda: revoked, lambda: NOW_MS))
    for good in (AUTHORITY.leaf(8), OTHER.leaf(7)):
        assert authentication.caller_of(Call(good)).principal == Principal("CN=ann")
    for bad in (AUTHORITY.leaf(7), AUTHORITY.leaf(9), OTHER.leaf(8)):
        with pytest.raises(RegnumError, match="is revoked"):
            authentication.caller_of(Call(bad))


@pytest.mark.parametrize(
    ("lists", "words"),
    [
        (lambda: b"", "no revocation list"),
        (lambda: b"-----BEGIN X509 CRL-----\nxx\n-----END X509 CRL-----\n", ""),
        (lambda: OTHER.list(7), "CN=other CA is signed by none of the listener's authorities"),
        (lambda: AUTHORITY.list(7, signer=OTHER), "CN=client CA is signed by none"),
        (lambda: AUTHORITY.list(7) + OTHER.list(7), "CN=other CA is signed by none"),
    ],
    ids=["empty", "damaged", "of another authority", "signed by another", "one of two"],
)
def test_lists_that_would_take_nothing_back_are_refused(lists: Callable[[], bytes], words: str, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(AUTHORITY.certificate)
    (tmp_path / "crl.pem").write_bytes(lists())
    with pytest.raises(TlsFilesError, match=rf"crl\.pem cannot be used.*{words}"):
        WatchedFiles(TlsFiles(ca=tmp_path / "ca.pem", crl=tmp_path / "crl.pem"))


async def test_an_authority_is_taken_out_with_its_list(tmp_path: Path) -> None:
    ca, crl, both = tmp_path / "ca.pem", tmp_path / "crl.pem", AUTHORITY.certificate + OTHER.certificate
    ca.write_bytes(both)
    crl.write_bytes(AUTHORITY.list(7) + OTHER.list(8))
    clock, complaints = FakeClock(), []
    files = WatchedFiles(TlsFiles(ca=ca, crl=crl), complain=complaints.append, monotonic_s=clock.monotonic)

    async def looked() -> bytes | None:
        await clock.advance(CHECK_INTERVAL_S)
        files.check()
        return files.pem.ca

    ca.write_bytes(AUTHORITY.certificate)
    assert await looked() == both, "a list that nobody signed is as good as none"
    assert ["take its list out, too" in one for one in complaints] == [True]
    crl.write_bytes(AUTHORITY.list(7))
    assert await looked() == AUTHORITY.certificate
    assert len(complaints) == 1


class Audit:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def unauthenticated(self, who: Caller, error: RegnumError, *, call: str) -> None:
        self.lines.append(f"{who.principal}: {error.message} {call}")


async def test_streams_end_with_a_list_that_comes_and_with_the_end_of_their_certificate(tmp_path: Path) -> None:
    paths = TlsFiles(ca=tmp_path / "ca.pem", crl=tmp_path / "crl.pem")
    (tmp_path / "ca.pem").write_bytes(AUTHORITY.certificate)
    (tmp_path / "crl.pem").write_bytes(AUTHORITY.list(1_000))
    clock, complaints, metrics, audit = FakeClock(wall_ms=NOW_MS), [], Metrics(), Audit()
    files = WatchedFiles(paths, complain=complaints.append, monotonic_s=clock.monotonic)
    standing = StandingCertificates(files, Denials(audit, metrics), clock)  # type: ignore[arg-type]
    ann = Caller(principal=Principal("ann"))

    async def stream(number: int) -> None:
        with calling(ann), standing.streams.opened(Certificate.read(AUTHORITY.leaf(number))):
            await asyncio.Event().wait()

    def looking(condition: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
        async def looked() -> bool:
            # Files are read on a thread: whether it is done with one look before the next is nobody's promise.
            await clock.advance(0.5)
            return condition()

        return looked

    first, second = asyncio.create_task(stream(0x7A)), asyncio.create_task(stream(0x7B))
    running = asyncio.create_task(standing.run())
    await settle()
    (tmp_path / "crl.pem").write_bytes(b"half a fi")
    await until(looking(lambda: len(complaints) == 1))
    assert not first.done()
    (tmp_path / "crl.pem").write_bytes(AUTHORITY.list(1_000, 0x7A))
    await until(looking(first.done))
    assert code_of(first) == errors_pb2.ERROR_CODE_SASL_AUTHENTICATION_FAILED
    assert not second.done()
    clock.jump(60.0)
    await until(looking(second.done))
    # Whoever has renewed it comes again with the new one: that is no failure to give up for.
    assert code_of(second) == errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE
    running.cancel()
    assert [line.partition(" (")[2][:28] for line in audit.lines] == [
        "serial number 7a) is revoked",
        "serial number 7b) has expire",
    ]
    counted = next(one for one in metrics.read() if one.instrument is instruments.AUTHENTICATION_FAILURES)
    assert sorted(counted.numbers) == [
        (("client", "BROKER_NOT_AVAILABLE"), 1),
        (("client", "SASL_AUTHENTICATION_FAILED"), 1),
    ]


def code_of(task: "asyncio.Task[None]") -> int:
    error = task.exception()
    assert isinstance(error, RegnumError)
    return error.code
