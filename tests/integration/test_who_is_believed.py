"""A cluster over TLS with access rules: what certificates are believed for, for how long, and what refusals leave."""

import asyncio
import datetime as dt
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from regnum.admin.v1 import admin_pb2
from regnum.broker.v1 import log_pb2, log_pb2_grpc
from regnum_client import Admin, Consumer, EventFilter, EventKind, Producer, TlsFiles
from regnum_local.certificates import make, renew
from regnum_local.cluster import LaunchError, LocalCluster
from regnum_local.plan import CLIENT_CA, CLUSTER_CA, PROCESSES, STORES, Launch, Member, Role, command
from regnum_model.nodes import Address
from regnum_service.errors import RegnumError
from regnum_service.tls.channels import opener
from regnum_service.tls.files import WatchedFiles
from regnum_testing.guarded_cluster import RIGHTS
from regnum_testing.instant_alerts import scrape
from regnum_testing.old_calls import newest_old, of_version, outcomes, path_of
from regnum_testing.waiting import DEADLINE_S, awaited, eventually

# In full: what each part decides is tried in tests/unit; here they are all there are.
pytestmark = [
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(400),
]

"""As a cluster has them that was set up before processes had super users of their own."""
PROCESS_LIVES_S = (15.0, 30.0, 60.0)
"""Of the certificate that a process is started with; a longer one where the machine is too slow for it."""
CLIENT_LIFE_S = 6.0
CALL = "LogService/ListOffsets"

CONTROLLER, LIFELINE = "election.v1.ControllerService", "election.v1.LifelineService"
CONTROL, REPLICATION = "replication.v1.ReplicaControlService", "replication.v1.ReplicationService"
CALLS = [
    ("metadata-1", "election-1", "internal", f"{CONTROLLER}/Envelope", "broker"),
    ("election-1", "election-1", "internal", f"{CONTROLLER}/Envelope", "broker"),
    ("broker-1", "election-1", "internal", f"{CONTROLLER}/FollowState", "election"),
    ("metadata-1", "election-1", "lifeline", f"{LIFELINE}/BrokerLifeline", "broker"),
    ("broker-2", "broker-1", "internal", f"{CONTROL}/LeaderAndIsr", "election"),
    ("broker-2", "broker-1", "internal", f"{CONTROL}/UpdateMetadata", "metadata"),
    ("quota-1", "broker-1", "internal", f"{REPLICATION}/FetchReplica", "broker"),
    ("broker-1", "metadata-1", "internal", "propagation.v1.PropagationService/PublishChanges", "election"),
    ("broker-1", "quota-1", "internal", "quota.v1.QuotaService/Admit", "election"),
]
"""Who calls whom, at which listener, and which process alone may."""


def signed(authority: Path, to: Path, name: str, unit: str, seconds: float) -> x509.Certificate:
    """A certificate of that authority at a path, with its key beside it."""
    ca = x509.load_pem_x509_certificate(authority.read_bytes())
    ca_key = serialization.load_pem_private_key(authority.with_suffix(".key").read_bytes(), None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    kinds = (NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.COMMON_NAME)
    subject = x509.Name([x509.NameAttribute(*one) for one in zip(kinds, ("Regnum", unit, name), strict=True)])
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(seconds=seconds))
    )
    made = builder.sign(ca_key, hashes.SHA256())
    to.with_suffix(".key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    to.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return made


def revoke(certs: Path, *numbers: int) -> None:
    """Write the list of the clients' authority, whole or not at all."""
    ca = x509.load_pem_x509_certificate((certs / CLIENT_CA).read_bytes())
    key = serialization.load_pem_private_key((certs / CLIENT_CA).with_suffix(".key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    now = dt.datetime.now(dt.UTC)
    built = x509.CertificateRevocationListBuilder().issuer_name(ca.subject).last_update(now)
    built = built.next_update(now + dt.timedelta(days=1))
    for number in numbers:
        one = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(now).build()
        built = built.add_revoked_certificate(one)
    beside = certs / "client-crl.new"
    beside.write_bytes(built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    beside.replace(certs / "client-crl.pem")


def files(cluster: LocalCluster, name: str) -> TlsFiles:
    certs = cluster.data_dir / "certs"
    return TlsFiles(ca=certs / CLUSTER_CA, certificate=certs / f"{name}.pem", key=certs / f"{name}.key")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    """Each process has an audit log."""
    folder = tmp_path_factory.mktemp("believed") / "data"
    certs = folder / "certs"
    make(certs, [])
    revoke(certs)

    def audited(member: Member, launch: Launch) -> list[str]:
        line = command(member, launch)
        if member.role in STORES:
            return line
        return [*line, "--audit-log", str(folder / "audit" / f"{member.name}.log")]

    lists = ("--client-tls-crl", str(certs / "client-crl.pem"))
    extra = dict.fromkeys((Role.ELECTION, Role.BROKER, Role.METADATA), (*RIGHTS, *lists))
    started = LocalCluster(
        folder,
        brokers=2,
        elections=1,
        metadata=1,
        quotas=1,
        tls=True,
        extra={
            **extra,
            Role.QUOTA: RIGHTS,
            # Leaders change by what a test does alone.
            Role.ELECTION: (*extra[Role.ELECTION], "--leader-balance-interval-s", "86400"),
        },
        make_command=audited,
        report=lambda _text: None,
    )
    await started.start()
    try:
        async with Admin(started.bootstrap, tls=started.tls) as admin:
            await admin.create_topic("t", partitions=1, replication_factor=2)
        yield started
    finally:
        await started.stop()


def address(cluster: LocalCluster, name: str, listener: str) -> Address:
    return next(row for row in cluster.status() if row.name == name).addresses[listener]


def audit(cluster: LocalCluster, name: str) -> list[dict[str, Any]]:
    """What was changed, and what was refused, which has a file of its own."""
    files = [cluster.data_dir / "audit" / f"{name}.log{end}" for end in ("", ".denied")]
    return [json.loads(line) for file in files if file.exists() for line in file.read_text().splitlines()]


async def shown(cluster: LocalCluster, name: str, metric: str) -> float:
    samples = await asyncio.to_thread(scrape, address(cluster, name, "metrics"), metric)
    return sum(value for one, _, value in samples if one == metric)


def written(cluster: LocalCluster, name: str, wanted: Callable[[dict[str, Any]], bool]) -> Callable[[], Any]:
    async def there() -> bool:
        return any(map(wanted, audit(cluster, name)))

    return there


async def to_its_end(call: Any) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await call.read() is not grpc.aio.EOF:
            pass


async def ended(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await to_its_end(call)
    return caught.value


@pytest.mark.parametrize(
    ("who", "whom", "listener", "method", "only"), CALLS, ids=lambda one: str(one).rpartition("/")[2]
)
async def test_a_process_does_what_its_kind_does_and_nothing_else(
    cluster: LocalCluster, who: str, whom: str, listener: str, method: str, only: str
) -> None:
    before = await shown(cluster, whom, "regnum_acl_denials_total")
    async with opener(WatchedFiles(files(cluster, who)))(address(cluster, whom, listener)) as channel:
        # As a stream each way, whatever the call is: it is refused before anything of it is read.
        refused = await ended(channel.stream_stream(f"/regnum.{method}")(iter([b""]), timeout=DEADLINE_S))
    assert refused.code() is grpc.StatusCode.PERMISSION_DENIED
    name = method.rpartition(".")[2]
    kind = who.partition("-")[0]
    stands = f"the certificate of 'CN={who},OU=Processes,O=Regnum' stands for {kind} by process-role-mapping-rules"
    assert refused.details() == f"only {only} processes may call {name}, and {stands}"

    def line(one: dict[str, Any]) -> bool:
        return one["event"] == "denied" and one["call"] == name and one["certificate"].startswith(f"CN={who},")

    await eventually(written(cluster, whom, line))

    async def counted() -> bool:
        return await shown(cluster, whom, "regnum_acl_denials_total") > before

    await eventually(counted)


async def test_a_clients_certificate_with_the_name_of_the_processes_is_nobodys(cluster: LocalCluster) -> None:
    certs = cluster.data_dir / "certs"
    signed(certs / CLIENT_CA, certs / "evil.pem", PROCESSES, "Clients", 3_600)
    async with Admin(cluster.bootstrap, tls=files(cluster, "evil")) as evil:
        with pytest.raises(RegnumError, match=f"User:{PROCESSES} may not CREATE topic evil"):
            await evil.create_topic("evil", partitions=1, replication_factor=1)

    def line(one: dict[str, Any]) -> bool:
        return one["event"] == "denied" and one["resource"] == "topic:evil" and "internal-super-users" in one["rule"]

    await eventually(written(cluster, "election-1", line))


async def test_the_audit_log_names_the_broker_that_passed_a_call_on(cluster: LocalCluster) -> None:
    request = admin_pb2.CreateTopicsRequest(
        topics=[admin_pb2.NewTopic(name="passed-on", partitions=1, replication_factor=1)]
    )
    data = of_version("CreateTopics", request, newest_old("CreateTopics")).SerializeToString()
    async with opener(WatchedFiles(files(cluster, "client-admin")))(address(cluster, "broker-1", "client")) as channel:
        answer = await channel.unary_unary(path_of("CreateTopics"))(data, timeout=DEADLINE_S)
    assert outcomes("CreateTopics", answer) == [0]
    await eventually(written(cluster, "election-1", lambda one: one["resource"] == "topic:passed-on"))
    (line,) = [one for one in audit(cluster, "election-1") if one["resource"] == "topic:passed-on"]
    assert (line["principal"], line["forwarded"]) == ("User:admin", True)
    assert line["via"] == "CN=broker-1,OU=Processes,O=Regnum at 127.0.0.1"


async def leader(cluster: LocalCluster) -> str:
    async with Admin(cluster.bootstrap, tls=cluster.tls) as admin:
        return f"broker-{(await admin.describe_topic('t')).partitions[0].leader}"


async def test_a_revoked_certificate_ends_streams_and_calls_within_seconds(cluster: LocalCluster) -> None:
    certs, name = cluster.data_dir / "certs", await leader(cluster)
    made = signed(certs / CLIENT_CA, certs / "lost.pem", "admin", "Clients", 3_600)
    async with opener(WatchedFiles(files(cluster, "lost")))(address(cluster, name, "client")) as channel:
        stub = log_pb2_grpc.LogServiceStub(channel)
        stream = stub.Consume(log_pb2.ConsumeRequest(topic="t", partition=0, offset=0))
        ask = log_pb2.ListOffsetsRequest(queries=[log_pb2.OffsetQuery(topic="t", partition=0)])
        await stub.ListOffsets(ask, timeout=DEADLINE_S)
        revoke(certs, made.serial_number)
        for refused in (await ended(stream), await ended_call(stub.ListOffsets(ask, timeout=DEADLINE_S))):
            assert refused.code() is grpc.StatusCode.UNAUTHENTICATED
            assert f"(serial number {made.serial_number:x}) is revoked" in str(refused.details())

    def line(one: dict[str, Any]) -> bool:
        return (
            one["event"] == "unauthenticated" and one["call"] == "LogService/ListOffsets" and "revoked" in one["rule"]
        )

    await eventually(written(cluster, name, line))

    async def counted() -> bool:
        return await shown(cluster, name, "regnum_authentication_failures_total") >= 2

    await eventually(counted)
    async with Admin(cluster.bootstrap, tls=cluster.tls) as admin:
        await admin.describe_topic("t")


async def ended_call(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def test_a_client_whose_certificate_expires_goes_on_where_it_has_renewed_it(cluster: LocalCluster) -> None:
    certs, name = cluster.data_dir / "certs", await leader(cluster)
    for client in ("keeps", "renews"):
        made = signed(certs / CLIENT_CA, certs / f"{client}.pem", "admin", "Clients", CLIENT_LIFE_S)
    consumer = Consumer(cluster.bootstrap, tls=files(cluster, "renews"))
    keeping = opener(WatchedFiles(files(cluster, "keeps")))(address(cluster, name, "client"))
    async with consumer, keeping as channel:
        stub = log_pb2_grpc.LogServiceStub(channel)
        stream = stub.Consume(log_pb2.ConsumeRequest(topic="t", partition=0, offset=0))
        await consumer.assign("t", partitions=[0], start=0)
        await consumer.read(records_max=1, timeout_s=0.5)
        signed(certs / CLIENT_CA, certs / "renews.pem", "admin", "Clients", 3_600)
        left_s = (made.not_valid_after_utc - dt.datetime.now(dt.UTC)).total_seconds()
        await asyncio.sleep(max(0.0, left_s) + 1.0)  # the clock of the machine is what this is about
        said = await ended(stream)
        assert "has expired" in str(said.details())
        ask = log_pb2.ListOffsetsRequest(queries=[log_pb2.OffsetQuery(topic="t", partition=0)])
        refused = await ended_call(stub.ListOffsets(ask, timeout=DEADLINE_S))
        assert refused.code() is grpc.StatusCode.UNAUTHENTICATED
        assert "has expired" in str(refused.details())
        async with Producer(cluster.bootstrap, tls=cluster.tls) as producer:
            await (await producer.send("t", b"after", partition=0))
        found: list[bytes | None] = []
        async with asyncio.timeout(DEADLINE_S):
            while b"after" not in found:
                found += [one.value for one in await consumer.read(records_max=100, timeout_s=1.0)]


async def standing_on_an_old_certificate(cluster: LocalCluster) -> AsyncIterator[float]:
    """Until when (seconds since 1970) the certificate is good that broker-2's streams show; it has renewed it already.

    Several times, for no stream is sure to stand so long: a lifeline that is silent for 2 s on a busy machine is opened
    anew, and shows the renewed one.
    """
    certs = cluster.data_dir / "certs"
    for life_s in PROCESS_LIVES_S:
        ends_s = float(int(time.time() + life_s))  # certificates know whole seconds
        renew(certs, "broker-2", days=life_s / 86_400)
        await cluster.restart("broker-2")
        try:
            await cluster.wait_healthy("broker-2", life_s - 5.0)
        except LaunchError:
            renew(certs, "broker-2")
            await cluster.wait_healthy("broker-2")
        else:
            renew(certs, "broker-2")
            yield ends_s


async def test_a_process_that_has_renewed_its_certificate_is_not_missed_when_the_old_one_expires(
    cluster: LocalCluster,
) -> None:
    def expiries() -> int:
        lines = [*audit(cluster, "election-1"), *audit(cluster, "broker-1")]
        return sum(one["event"] == "unauthenticated" and one["certificate"].startswith("CN=broker-2,") for one in lines)

    async with Admin(cluster.bootstrap, tls=cluster.tls) as admin:

        async def whole() -> bool:
            return sorted((await admin.describe_topic("t")).partitions[0].isr) == [1, 2]

        async for ends_s in standing_on_an_old_certificate(cluster):
            await eventually(whole)
            told, now_s = expiries(), time.monotonic()

            async def expired(told: int = told) -> bool:
                return expiries() > told

            if await awaited(expired, until_s=now_s + ends_s - time.time() + 10.0, every_s=0.2):
                break
        else:
            pytest.fail("no stream of broker-2 stood until its certificate expired, or it was not ended")
        async with Producer(cluster.bootstrap, tls=cluster.tls) as producer:
            await (await producer.send("t", b"replicated", partition=0))
        await eventually(whole)
        missed = frozenset({EventKind.BROKER_FENCED, EventKind.BROKER_GONE, EventKind.ISR_CHANGED})
        chosen = EventFilter(broker=2, kinds=missed, since_unix_ms=round(1_000 * ends_s))
        assert await admin.last_events(chosen, limit=10) == ()
