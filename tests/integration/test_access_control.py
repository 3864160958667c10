"""A whole cluster with access rules: who may what, at every process, and that a right is gone once it is revoked."""

import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from regnum.types.v1 import errors_pb2
from regnum_client import Admin, Consumer, Producer
from regnum_client.admin.acls.values import (
    AclFilter,
    Operation,
    ResourceType,
)
from regnum_local.cluster import LocalCluster
from regnum_service.errors import RegnumError
from regnum_testing.guarded_cluster import allow, files_of, guarded_cluster
from regnum_testing.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

DENIED = errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED
NOT_ALLOWED = {DENIED, errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED}
"""Of a producer: the topic is refused, or already the producer id that it begins with."""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    """Processes and admin are super users; the client app may nothing."""
    folder = tmp_path_factory.mktemp("acls") / "data"
    async with guarded_cluster(folder, "app", brokers=2, elections=2, quotas=1) as started:
        yield started


async def code_of_producing(cluster: LocalCluster, topic: str) -> int:
    try:
        async with Producer(cluster.bootstrap, tls=files_of(cluster, "app")) as producer:
            await (await producer.send(topic, b"x"))
    except RegnumError as error:
        return error.code
    return errors_pb2.ERROR_CODE_NONE


async def test_without_a_rule_nothing_is_done_and_no_name_is_told(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap, tls=cluster.tls) as admin:
        await admin.create_topic("secret", partitions=1, replication_factor=2)
        assert [topic.name for topic in await admin.list_topics()] == ["secret"]
    async with Admin(cluster.bootstrap, tls=files_of(cluster, "app"), timeout_s=20.0) as stranger:
        assert [topic.name for topic in await stranger.list_topics()] == []
        for name in ("secret", "made-up"):
            with pytest.raises(RegnumError) as refused:
                await stranger.create_topic(name, partitions=1, replication_factor=1)
            assert refused.value.code == DENIED
            with pytest.raises(RegnumError) as refused:
                await stranger.delete_topic(name)
            assert refused.value.code == DENIED
        with pytest.raises(RegnumError) as refused:
            await stranger.describe_acls()
        assert refused.value.code == errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED
    assert await code_of_producing(cluster, "secret") in NOT_ALLOWED


async def test_a_right_is_there_once_it_is_granted_and_gone_once_it_is_revoked(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap, tls=cluster.tls) as admin:
        await admin.create_topic("shared.a", partitions=1, replication_factor=2)
        await admin.create_acl(allow("app", Operation.WRITE, "shared.", prefixed=True))
        check = await admin.check_acl("User:app", Operation.DESCRIBE, ResourceType.TOPIC, "shared.a")
        assert (check.allowed, check.rule, check.enforced) == (
            True,
            allow("app", Operation.WRITE, "shared.", prefixed=True),
            True,
        )

        async def allowed() -> bool:
            return await code_of_producing(cluster, "shared.a") == errors_pb2.ERROR_CODE_NONE

        async def denied() -> bool:
            return await code_of_producing(cluster, "shared.a") in NOT_ALLOWED

        await eventually(allowed, what="app may write")
        async with Admin(cluster.bootstrap, tls=files_of(cluster, "app")) as stranger:
            assert [topic.name for topic in await stranger.list_topics()] == ["shared.a"]
        assert await admin.delete_acls(AclFilter(principal="User:app")) == {
            allow("app", Operation.WRITE, "shared.", prefixed=True): None
        }
        await eventually(denied, what="app may not write any more")


async def test_a_stream_of_records_ends_when_its_right_is_revoked(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap, tls=cluster.tls) as admin:
        await admin.create_topic("stream", partitions=1, replication_factor=2)
        await admin.create_acl(allow("app", Operation.READ, "stream"))
        async with Producer(cluster.bootstrap, tls=cluster.tls) as producer:
            await (await producer.send("stream", b"before"))
            async with Consumer(cluster.bootstrap, topics=["stream"], tls=files_of(cluster, "app")) as consumer:
                read: list[bytes] = []

                async def first() -> bool:
                    read.extend([one.value or b"" for one in await consumer.read(records_max=10, timeout_s=1.0)])
                    return read == [b"before"]

                await eventually(first, what="app reads what is there")
                await admin.delete_acls(AclFilter(principal="User:app"))

                async def refused() -> bool:
                    await (await producer.send("stream", os.urandom(4)))
                    try:
                        await consumer.read(records_max=10, timeout_s=0.2)
                    except RegnumError as error:
                        return error.code == DENIED
                    return False

                await eventually(refused, what="the stream ends")
        assert not (await admin.check_acl("User:app", Operation.READ, ResourceType.TOPIC, "stream")).allowed
