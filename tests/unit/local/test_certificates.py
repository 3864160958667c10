"""Certificates of a development cluster: who signs what, who may read the keys, and that nothing is overwritten."""

import datetime as dt
import stat
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from regnum_client.cluster.security.channels import TlsFiles, tls_files
from regnum_client.command import main
from regnum_local.certificates import ADMIN, GUEST, add_missing, add_store, add_token_secret, client_files, make, renew
from regnum_local.identity import ProcessIdentity
from regnum_local.local_tls import LocalTls
from regnum_local.plan import CLIENT_CA, CLUSTER_CA, STORE_ADMIN, STORE_PEER_CA, TOKEN_SECRET, Member, Plan, Role
from regnum_local.profile import Profile, ProfileTls, write_profile
from regnum_service.access.tokens.secrets import read_secrets
from regnum_service.errors import ExitStatus, StartRefusedError
from regnum_service.tls.files import WatchedFiles

PLAN = Plan(members=(Member(role=Role.ETCD, id=1, ports={}), Member(role=Role.BROKER, id=1, ports={})))


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_processes_and_clients_have_different_authorities_usages_and_names(tmp_path: Path) -> None:
    files = make(tmp_path, ["broker-1"], hosts=("localhost", "10.0.0.1"), clients=("ann",))
    assert all(file.exists() for file in files)
    broker, ann = certificate(tmp_path / "broker-1.pem"), certificate(client_files(tmp_path, "ann")[0])
    broker.verify_directly_issued_by(certificate(tmp_path / CLUSTER_CA))
    ann.verify_directly_issued_by(certificate(tmp_path / CLIENT_CA))
    with pytest.raises(ValueError, match="Issuer"):
        ann.verify_directly_issued_by(certificate(tmp_path / CLUSTER_CA))
    assert broker.subject.rfc4514_string() == "CN=broker-1,OU=Processes,O=Regnum"
    assert ann.subject.rfc4514_string() == "CN=ann,OU=Clients,O=Regnum"
    names = broker.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["broker-1", "localhost"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1"]
    usages = ann.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.CLIENT_AUTH], "a client's certificate makes no server"
    WatchedFiles(TlsFiles(ca=tmp_path / CLUSTER_CA, certificate=files[4], key=files[5]))


def test_nobody_else_may_read_a_key_or_look_into_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    for file in make(folder, ["broker-1"]):
        if file.suffix == ".key":
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_what_is_there_is_never_overwritten(tmp_path: Path) -> None:
    make(tmp_path, ["broker-1"])
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(StartRefusedError, match=r"has broker-1.pem, .* already") as refused:
        make(tmp_path, ["broker-1", "broker-2"])
    assert refused.value.exit_status is ExitStatus.CONFLICT
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_cluster_that_grows_gets_what_is_missing_and_keeps_the_rest(tmp_path: Path) -> None:
    make(tmp_path, ["broker-1"])
    before = (tmp_path / "broker-1.pem").read_bytes()
    made = add_missing(tmp_path, ["broker-1", "broker-2"])
    assert [file.name for file in made] == ["broker-2.pem", "broker-2.key"]
    certificate(made[0]).verify_directly_issued_by(certificate(tmp_path / CLUSTER_CA))
    assert (tmp_path / "broker-1.pem").read_bytes() == before
    renew(tmp_path, "broker-1")
    assert (tmp_path / "broker-1.pem").read_bytes() != before
    (tmp_path / "cluster-ca.key").unlink()
    with pytest.raises(StartRefusedError, match="cannot sign"):
        add_missing(tmp_path, ["broker-3"])


@pytest.mark.parametrize("client", ["", "regnum", "a,b", "x" * 65, "../x", "a/b", "a b"])
def test_names_that_would_be_somebody_else_are_refused(tmp_path: Path, client: str) -> None:
    folder = tmp_path / "new"
    with pytest.raises(StartRefusedError):
        make(folder, ["broker-1"], clients=(client,))
    assert not folder.exists()


def test_the_command_says_what_it_made_what_to_do_next_and_refuses_a_second_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The command takes the hook of its process for itself; this one is the tests'.
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    asked = ["certs", "init", "--dir", str(tmp_path / "c"), "--brokers", "1", "--elections", "1", "--client", "ann"]
    assert main(asked) == 0
    first = capsys.readouterr()
    assert "client-ann.pem" in first.out
    assert "--internal-tls-certificate" in first.err
    assert "--client-tls-client-auth required" in first.err
    assert main(asked) == ExitStatus.CONFLICT
    assert "name another folder" in capsys.readouterr().err


def profile(folder: Path, launcher: ProcessIdentity) -> Profile:
    certificate, key = client_files(folder)
    return Profile(
        bootstrap=("127.0.0.1:1", "127.0.0.1:2"),
        elections=("127.0.0.1:3",),
        coordination="etcd://127.0.0.1:4",
        data_dir=folder,
        launcher=launcher,
        tls=ProfileTls(ca=folder / CLUSTER_CA, certificate=certificate, key=key),
    )


def test_a_profile_counts_for_its_own_cluster_and_what_is_said_counts_more(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    write_profile(profile(tmp_path, ProcessIdentity.of_self()), path)
    here = {"REGNUM_PROFILE": str(path)}
    certificate, key = client_files(tmp_path, ADMIN)
    its_own = TlsFiles(ca=tmp_path / CLUSTER_CA, certificate=certificate, key=key)
    assert tls_files(None, environment=here) == its_own
    assert tls_files(["127.0.0.1:2", "127.0.0.1:3"], environment=here) == its_own
    assert tls_files("127.0.0.1:1, 127.0.0.1:2", environment=here) == its_own
    assert tls_files("127.0.0.1:1,10.0.0.1:1", environment=here) is None
    assert tls_files(None, environment={**here, "REGNUM_BOOTSTRAP": "10.0.0.1:1"}) is None
    other = Path("/other.pem")
    assert tls_files(None, environment={**here, "REGNUM_TLS_CA": str(other)}) == TlsFiles(ca=other)
    assert tls_files("127.0.0.1:1", TlsFiles(ca=other), here) == TlsFiles(ca=other)
    path.write_text("{")
    assert tls_files("127.0.0.1:1", environment=here) is None


def test_a_local_cluster_has_a_guest_whose_certificate_comes_later_where_it_was_made_without(tmp_path: Path) -> None:
    make(tmp_path, ["broker-1"])
    admin = client_files(tmp_path, "admin")[0].read_bytes()
    LocalTls(tmp_path).prepare(PLAN)
    shown, key = client_files(tmp_path, GUEST)
    assert "CN=guest" in certificate(shown).subject.rfc4514_string()
    assert key.stat().st_mode & 0o777 == 0o600
    assert client_files(tmp_path, "admin")[0].read_bytes() == admin
    assert (tmp_path / "etcd.pem").exists(), "a folder from before the store spoke TLS gets what it lacks"


def test_a_store_is_signed_as_no_process_and_its_peers_by_nobody_who_signs_anything_else(tmp_path: Path) -> None:
    make(tmp_path, ["broker-1"])
    made = add_store(tmp_path, "etcd")
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in made if file.suffix == ".key")
    for name in ("etcd", STORE_ADMIN):
        shown = certificate(tmp_path / f"{name}.pem")
        shown.verify_directly_issued_by(certificate(tmp_path / CLUSTER_CA))
        assert shown.subject.rfc4514_string() == f"CN={name},OU=Stores,O=Regnum"
    peer = certificate(tmp_path / "etcd-peer.pem")
    peer.verify_directly_issued_by(certificate(tmp_path / STORE_PEER_CA))
    for other in (CLUSTER_CA, CLIENT_CA):
        with pytest.raises(ValueError, match="Issuer"):
            peer.verify_directly_issued_by(certificate(tmp_path / other))
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    assert add_store(tmp_path, "etcd") == []
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_the_secret_of_tokens_is_its_owners_alone_and_stays(tmp_path: Path) -> None:
    add_token_secret(tmp_path)
    file = tmp_path / TOKEN_SECRET
    made = file.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_secrets(file, None) is not None
    add_token_secret(tmp_path)
    assert file.read_bytes() == made


def test_a_certificate_that_does_not_name_a_host_is_made_anew_and_others_stay(tmp_path: Path) -> None:
    make(tmp_path, ["broker-1", "broker-2"])
    authority = (tmp_path / CLUSTER_CA).read_bytes()
    assert add_missing(tmp_path, ["broker-1", "broker-2"]) == []
    made = add_missing(tmp_path, ["broker-1"], hosts=("localhost", "10.0.0.5"))
    assert [file.name for file in made] == ["broker-1.pem", "broker-1.key"]
    assert (tmp_path / CLUSTER_CA).read_bytes() == authority
    assert add_missing(tmp_path, ["broker-1"], hosts=("10.0.0.5",)) == []


def test_certificates_that_expire_within_a_month_are_made_anew_by_the_same_authorities(tmp_path: Path) -> None:
    make(tmp_path, ["broker-1"], days=29)
    add_store(tmp_path, "etcd", days=29)
    authorities = {name: (tmp_path / name).read_bytes() for name in (CLUSTER_CA, CLIENT_CA, STORE_PEER_CA)}
    LocalTls(tmp_path).prepare(PLAN)
    names = ("broker-1.pem", "client-admin.pem", "etcd.pem", f"{STORE_ADMIN}.pem", "etcd-peer.pem")
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(days=300)
    assert [name for name in names if certificate(tmp_path / name).not_valid_after_utc < soon] == []
    assert {name: (tmp_path / name).read_bytes() for name in authorities} == authorities
    LocalTls(tmp_path).store_context()
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    LocalTls(tmp_path).prepare(PLAN)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_those_that_are_valid_for_longer_stay(tmp_path: Path) -> None:
    make(tmp_path, ["broker-1"], days=31)
    add_store(tmp_path, "etcd", days=31)
    assert (add_missing(tmp_path, ["broker-1"]), add_store(tmp_path, "etcd")) == ([], [])


@pytest.mark.parametrize("name", [CLUSTER_CA, CLIENT_CA, STORE_PEER_CA])
def test_an_authority_that_has_expired_is_named_and_nothing_is_made(tmp_path: Path, name: str) -> None:
    LocalTls(tmp_path).prepare(PLAN)
    secret = (tmp_path / TOKEN_SECRET).read_bytes()
    authority, now = certificate(tmp_path / name), dt.datetime.now(dt.UTC)
    key = serialization.load_pem_private_key((tmp_path / name).with_suffix(".key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    expired = (
        x509.CertificateBuilder(authority.issuer, authority.subject, authority.public_key(), authority.serial_number)
        .not_valid_before(now - dt.timedelta(days=2))
        .not_valid_after(now - dt.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    (tmp_path / name).write_bytes(expired.public_bytes(serialization.Encoding.PEM))
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(StartRefusedError, match=rf"{name} expired on \d{{4}}-.* to another folder and start again"):
        LocalTls(tmp_path).prepare(PLAN)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before
    for file in (*tmp_path.glob("*.pem"), *tmp_path.glob("*.key")):
        file.unlink()
    LocalTls(tmp_path).prepare(PLAN)
    assert certificate(tmp_path / name).not_valid_after_utc > now
    assert (tmp_path / TOKEN_SECRET).read_bytes() == secret, "tokens stay"
