"""What a service is told of its listeners: what does not go together is refused before anything listens."""

from pathlib import Path

import pytest
from regnum_broker.settings import BrokerSettings
from regnum_quota.settings import QuotaSettings
from regnum_service.access.identity import ProcessRole
from regnum_service.errors import StartRefusedError
from regnum_service.settings import load
from regnum_service.tls.settings import ProcessTls
from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Metrics
from regnum_testing.tls_cases import Certificates

STORE = ["--coordination", "etcd://127.0.0.1:2379"]
QUOTA = [*STORE, "--quota-id", "1", "--internal-listen", "127.0.0.1:5"]
BROKER = [*STORE, "--broker-id", "1", "--data-dir", "/nowhere", "--internal-listen", "127.0.0.1:5"]
CLIENT = ["--client-listen", "127.0.0.1:5"]


def refused(
    settings: type[BrokerSettings | QuotaSettings], flags: list[str], capsys: pytest.CaptureFixture[str]
) -> str:
    with pytest.raises(SystemExit) as ended:
        load(settings, flags)
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.fixture
def internal(tmp_path: Path) -> list[str]:
    certificates = Certificates(tmp_path)
    leaf = certificates.right()
    files = {"certificate": leaf.certificate, "key": leaf.key, "ca": certificates.ca}
    return [part for name, path in files.items() for part in (f"--internal-tls-{name}", str(path))]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "[::1]"])
def test_plaintext_is_spoken_on_this_machine(host: str) -> None:
    settings = load(QuotaSettings, [*QUOTA[:-1], f"{host}:5"])
    assert not settings.speaks_tls("internal")


@pytest.mark.parametrize("host", ["10.0.0.1", "broker-1.example", "[2001:db8::1]", "[::ffff:10.0.0.1]"])
def test_plaintext_that_others_reach_is_refused_where_that_is_wanted(host: str, internal, capsys) -> None:
    flags = [*QUOTA[:-1], f"{host}:5"]
    assert not load(QuotaSettings, flags).speaks_tls("internal")
    flags += ["--allow-plaintext-beyond-loopback", "false"]
    said = refused(QuotaSettings, flags, capsys)
    assert "--internal-tls-certificate" in said
    assert "allow-plaintext-beyond-loopback" in said
    assert load(QuotaSettings, [*flags, *internal]).speaks_tls("internal")


def test_tls_of_one_listener_does_not_cover_the_other(internal, capsys) -> None:
    beyond = ["--client-listen", "10.0.0.1:5", "--allow-plaintext-beyond-loopback", "false"]
    assert "client-listen is 10.0.0.1:5" in refused(BrokerSettings, [*BROKER, *beyond, *internal], capsys)
    settings = load(BrokerSettings, [*BROKER, *CLIENT, *internal])
    assert settings.speaks_tls("internal")
    assert settings.speaks_tls("lifeline")
    assert not settings.speaks_tls("client")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--client-tls-certificate", "c"], "client-tls-certificate and client-tls-key belong together"),
        (["--client-tls-key", "k"], "client-tls-certificate and client-tls-key belong together"),
        (["--client-tls-client-auth", "required"], "give --client-tls-certificate"),
        (
            ["--client-tls-client-auth", "required", "--client-tls-certificate", "c", "--client-tls-key", "k"],
            "--client-tls-ca",
        ),
        (["--client-tls-client-auth", "requested"], "cannot ask for a certificate without insisting"),
        (["--client-tls-client-auth", "perhaps"], "client-tls-client-auth"),
        (["--internal-tls-certificate", "c", "--internal-tls-key", "k"], "give all three, or none"),
        (["--internal-tls-ca", "ca"], "give all three, or none"),
        (["--tls-principal-mapping-rules", "RULE:(/x/"], "no pattern of RE2"),
        (["--client-tls-principal-mapping-rules", "RULE:(/x/"], "no pattern of RE2"),
        (["--process-role-mapping-rules", "broker"], "begins no rule"),
        (["--process-role-mapping-rules", "DEFAULT"], "between processes there is no TLS"),
        (["--internal-tls-crl", "crl"], "between processes there is no TLS"),
        (["--client-tls-crl", "crl"], "client-tls-ca"),
        (["--internal-super-users", "User:*"], "every client"),
        (["--client-max-connections", "0"], "client-max-connections"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(flags: list[str], words: str, capsys) -> None:
    assert words in refused(BrokerSettings, [*BROKER, *CLIENT, *flags], capsys)


def test_files_that_cannot_be_read_end_the_start_and_are_named(internal, capsys) -> None:
    settings = load(QuotaSettings, [*QUOTA, *internal])
    assert settings.internal_tls_key is not None
    settings.internal_tls_key.unlink()
    with pytest.raises(StartRefusedError, match="cannot read") as refusal:
        ProcessTls.of(settings)
    assert str(settings.internal_tls_key) in str(refusal.value)
    assert refusal.value.exit_status == 2


def test_between_processes_a_certificate_is_always_asked_for(internal) -> None:
    tls = ProcessTls.of(load(BrokerSettings, [*BROKER, *CLIENT, *internal]))
    assert tls.internal.tls is not None
    assert tls.internal.tls.requires_certificate
    assert tls.internal.limits.connections_max is None
    assert tls.client.tls is None
    assert tls.client.limits.connections_max == 10_000


def test_each_plaintext_listener_says_so_at_the_start(internal, capsys) -> None:
    ProcessTls.of(load(BrokerSettings, [*BROKER, *CLIENT, *internal]))
    said = capsys.readouterr()
    assert (said.out + said.err).count("speaks plaintext") == 1
    ProcessTls.of(load(QuotaSettings, QUOTA))
    said = capsys.readouterr()
    assert (said.out + said.err).count("speaks plaintext") == 1


CN_BROKER = "CN=broker,OU=Testing cert,O=trustme"


def test_each_listener_has_its_own_rules_and_without_rules_of_roles_that_is_said(internal, capsys) -> None:
    client = [part.replace("--internal-", "--client-") for part in internal]
    flags = [*BROKER, *CLIENT, *internal, *client, "--tls-principal-mapping-rules", "RULE:.*/all/"]
    told = ProcessTls.of(load(BrokerSettings, flags))
    assert told.internal.tls is not None
    assert told.client.tls is not None
    assert {told.internal.tls.principal_of(CN_BROKER).name, told.client.tls.principal_of(CN_BROKER).name} == {"all"}
    assert told.internal.tells_processes_apart is False
    (warning,) = told.warnings
    assert "--process-role-mapping-rules" in warning
    assert warning in capsys.readouterr().out

    flags += ["--client-tls-principal-mapping-rules", "RULE:.*/client/", "--internal-tls-principal-mapping-rules"]
    metrics = Metrics()
    told = ProcessTls.of(
        load(BrokerSettings, [*flags, "RULE:.*/process/", "--process-role-mapping-rules", "RULE:^CN=([a-z]+),.*/$1/"]),
        metrics=metrics,
    )
    assert told.internal.tls is not None
    assert told.client.tls is not None
    assert told.internal.tls.principal_of(CN_BROKER).name == "process"
    assert told.client.tls.principal_of(CN_BROKER).name == "client"
    assert told.internal.tls.role_of is not None
    assert told.internal.tls.role_of(CN_BROKER) is ProcessRole.BROKER
    assert told.client.tls.role_of is None, "processes have a listener of their own"
    assert told.warnings == ()
    assert "told apart" not in capsys.readouterr().out
    shown_apart = next(one for one in metrics.read() if one.instrument is instruments.PROCESSES_TOLD_APART)
    assert list(shown_apart.numbers) == [((), 1.0)]


def test_connections_of_clients_have_an_age_and_those_of_processes_none(internal) -> None:
    tls = ProcessTls.of(load(BrokerSettings, [*BROKER, *CLIENT, *internal]))
    assert (tls.internal.limits.age_s, tls.internal.limits.connections_per_address_max) == (None, None)
    assert (tls.client.limits.age_s, tls.client.limits.age_grace_s) == (3_600.0, 3_600.0)
    assert tls.client.limits.connections_per_address_max is None, "many clients share an address behind a NAT"
    flags = ["--client-connections-max-age-s", "0", "--client-max-connections-per-address", "7"]
    limits = ProcessTls.of(load(BrokerSettings, [*BROKER, *CLIENT, *internal, *flags])).client.limits
    assert (limits.age_s, limits.connections_per_address_max) == (None, 7)
    assert "grpc.max_connection_age_ms" not in dict(limits.options)
