"""A process says until when the certificates of its listeners are good, and of new ones when they are in use."""

from pathlib import Path

from regnum_broker.settings import BrokerSettings
from regnum_service.settings import load
from regnum_service.tls.expiry import ExpiredCertificates, Expiry, expiry_s
from regnum_service.tls.files import CHECK_INTERVAL_S, TlsFiles, WatchedFiles
from regnum_service.tls.settings import ProcessTls
from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Metrics
from regnum_testing.clock import FakeClock
from regnum_testing.tls_cases import Certificates

DAY_S = 86_400.0


def shown(metrics: Metrics) -> dict[tuple[str, ...], float]:
    return {
        labels: value
        for reading in metrics.read()
        if reading.instrument is instruments.CERTIFICATE_EXPIRY
        for labels, value in reading.numbers
    }


def test_each_listener_with_tls_says_when_its_certificate_expires_and_others_say_nothing(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    leaf, old = certificates.right(), certificates.expired()
    flags = ["--coordination", "etcd://127.0.0.1:2379", "--broker-id", "1", "--data-dir", "/nowhere"]
    flags += ["--internal-listen", "127.0.0.1:5", "--client-listen", "127.0.0.1:5"]
    metrics = Metrics()
    ProcessTls.of(load(BrokerSettings, flags), metrics=metrics)
    assert shown(metrics) == {}
    inside = {"certificate": leaf.certificate, "key": leaf.key, "ca": certificates.ca}
    flags += [part for name, path in inside.items() for part in (f"--internal-tls-{name}", str(path))]
    flags += ["--client-tls-certificate", str(old.certificate), "--client-tls-key", str(old.key)]
    ProcessTls.of(load(BrokerSettings, flags), metrics=metrics)
    found = shown(metrics)
    assert set(found) == {("client",), ("internal",)}
    assert found["internal",] == expiry_s(Path(leaf.certificate).read_bytes())
    assert found["internal",] > found["client",] + DAY_S


def test_the_first_that_expires_of_a_chain_counts(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    good = Path(certificates.right().certificate).read_bytes()
    bad = Path(certificates.expired().certificate).read_bytes()
    assert expiry_s(good + bad) == expiry_s(bad) < expiry_s(good)


def test_a_new_certificate_is_told_of_when_it_is_in_use_and_is_read_once(tmp_path: Path) -> None:
    certificates, clock = Certificates(tmp_path), FakeClock()
    old, new = certificates.expired(), certificates.right()
    first, second = (Path(one.certificate).read_bytes() for one in (old, new))
    files = WatchedFiles(TlsFiles(certificate=old.certificate, key=old.key), monotonic_s=clock.monotonic)
    read: list[bytes] = []

    def counted(certificate: bytes) -> float:
        read.append(certificate)
        return expiry_s(certificate)

    expiry = Expiry(files, counted)
    assert expiry.now_s() == expiry.now_s() == expiry_s(first)
    Path(old.key).write_bytes(Path(new.key).read_bytes())
    Path(old.certificate).write_bytes(second)
    assert expiry.now_s() == expiry_s(first), "nobody has connected since"
    clock.skip(2 * CHECK_INTERVAL_S)
    files.check()
    assert expiry.now_s() == expiry_s(second)
    assert read == [first, second]


def test_what_nobody_can_read_is_not_shown(tmp_path: Path) -> None:
    leaf = Certificates(tmp_path).right()
    files = WatchedFiles(TlsFiles(certificate=leaf.certificate, key=leaf.key))

    def unreadable(_: bytes) -> float:
        raise ValueError("no certificate")

    assert Expiry(files, unreadable).now_s() is None
    assert Expiry(WatchedFiles(TlsFiles())).now_s() is None


def test_a_certificate_that_has_expired_is_told_of_until_another_one_is_there(tmp_path: Path) -> None:
    certificates, clock = Certificates(tmp_path), FakeClock()
    old, new = certificates.expired(), certificates.right()
    at_s = expiry_s(Path(old.certificate).read_bytes())
    files = WatchedFiles(TlsFiles(certificate=old.certificate, key=old.key), monotonic_s=clock.monotonic)
    expired = ExpiredCertificates({"client": files})
    assert expired.look(at_s - 1) == ""
    assert "the certificate of its client listener expired at 2" in expired.look(at_s)
    Path(old.key).write_bytes(Path(new.key).read_bytes())
    Path(old.certificate).write_bytes(Path(new.certificate).read_bytes())
    clock.skip(2 * CHECK_INTERVAL_S)
    assert expired.look(at_s) == "", "nobody has to connect for it"
