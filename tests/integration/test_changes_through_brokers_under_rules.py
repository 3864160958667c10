"""Old clients behind a broker, with TLS and access rules: their rights count, and their names are written down."""

import json
from collections.abc import AsyncIterator

import grpc
import pytest
import pytest_asyncio
from google.protobuf.message import Message
from regnum.admin.v1 import admin_pb2
from regnum.election.v1 import controller_pb2, controller_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_client import Admin
from regnum_client.admin.acls.values import Operation
from regnum_local.cluster import LocalCluster
from regnum_local.plan import NOT_GRPC, PROCESSES, Role
from regnum_model.nodes import Address
from regnum_service.tls.channels import opener
from regnum_service.tls.files import WatchedFiles
from regnum_testing.guarded_cluster import allow, files_of, guarded_cluster
from regnum_testing.old_calls import newest_old, of_version, outcomes, path_of
from regnum_testing.waiting import DEADLINE_S, eventually

# In full: what each process does for it is tried in tests/unit; here they are all there are.
pytestmark = [
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(240),
]

DENIED = [errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    """Processes and admin are super users; the client app may nothing. The controller keeps an audit log."""
    folder = tmp_path_factory.mktemp("through-brokers") / "data"
    audit = {Role.ELECTION: ("--audit-log", str(folder.parent / "audit.log"))}
    async with guarded_cluster(folder, "app", brokers=2, quotas=1, extra=audit) as started:
        yield started


def audited(cluster: LocalCluster, resource: str) -> list[dict[str, object]]:
    """Lines of the audit log about something."""
    text = (cluster.data_dir.parent / "audit.log").read_text(encoding="utf-8")
    return [line for line in map(json.loads, text.splitlines()) if resource in json.dumps(line)]


def old_creation(name: str) -> Message:
    request = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name=name, partitions=1, replication_factor=1)])
    request.header.client_id = "old-tool"
    return of_version("CreateTopics", request, None)


async def create(cluster: LocalCluster, broker: str, name: str) -> list[int]:
    """As app, by way of a broker, in an old version."""
    request = old_creation(name)
    request.header.api_version = newest_old("CreateTopics")  # type: ignore[attr-defined]
    channel = opener(WatchedFiles(files_of(cluster, "app")))(Address.parse(broker))
    try:
        answer = await channel.unary_unary(path_of("CreateTopics"))(request.SerializeToString(), timeout=DEADLINE_S)
    finally:
        await channel.close()
    return outcomes("CreateTopics", answer)


async def test_the_rights_of_the_client_count_and_its_name_is_written_down_whichever_broker_it_asks(
    cluster: LocalCluster,
) -> None:
    for broker in cluster.bootstrap:
        assert await create(cluster, broker, "old.refused") == DENIED
    async with Admin(cluster.bootstrap, tls=cluster.tls) as admin:
        await admin.create_acl(allow("app", Operation.CREATE, "old.", prefixed=True))
    for number, broker in enumerate(cluster.bootstrap):

        async def created(broker: str = broker, name: str = f"old.{number}") -> bool:
            return await create(cluster, broker, name) == [0]

        await eventually(created, what="the rule is known to the controller")

    async def written() -> bool:
        return all(audited(cluster, f"topic:old.{number}") for number in range(len(cluster.bootstrap)))

    await eventually(written, what="the lines are in the file")
    for number in range(len(cluster.bootstrap)):
        (line,) = [one for one in audited(cluster, f"topic:old.{number}") if "NONE" in json.dumps(one)]
        text = json.dumps(line)
        assert "User:app" in text
        assert PROCESSES not in text, "the broker only passed it on"
        assert "127.0.0.1" in text
        assert "old-tool" in text
        assert "AdminService/CreateTopics" in text


async def test_a_client_that_sends_envelopes_itself_is_refused_wherever_it_does(cluster: LocalCluster) -> None:
    """With its own certificate, and somebody else's name inside."""
    envelope = controller_pb2.EnvelopeRequest(
        method=path_of("CreateTopics"),
        request=old_creation("old.forged").SerializeToString(),
        caller=controller_pb2.OriginalCaller(principal_type="User", principal_name="admin"),
    )
    listeners = {
        name: address
        for row in cluster.status()
        if row.role in {Role.ELECTION, Role.BROKER}
        for name, address in ((f"{row.name} {name}", at) for name, at in row.addresses.items() if name not in NOT_GRPC)
    }
    assert any("internal" in name for name in listeners)
    for name, address in listeners.items():
        channel = opener(WatchedFiles(files_of(cluster, "app")))(address)
        stub: controller_pb2_grpc.ControllerServiceAsyncStub = controller_pb2_grpc.ControllerServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Envelope(envelope, timeout=DEADLINE_S)
        await channel.close()
        assert caught.value.code() in {
            grpc.StatusCode.PERMISSION_DENIED,
            grpc.StatusCode.UNIMPLEMENTED,
            # Listeners between processes take no certificate of a client at all.
            grpc.StatusCode.UNAVAILABLE,
        }, name
    async with Admin(cluster.bootstrap, tls=cluster.tls) as admin:
        assert "old.forged" not in {topic.name for topic in await admin.list_topics()}
