"""Changes topics, quotas and settings at the controller and describes the cluster."""

from typing import Final

from regnum_client.admin.acls.acl_admin import AclAdmin
from regnum_client.admin.config_admin import ConfigAdmin
from regnum_client.admin.describing.event_admin import EventAdmin
from regnum_client.admin.describing.offset_admin import OffsetAdmin
from regnum_client.admin.describing.pages import DescribeAdmin
from regnum_client.admin.describing.replica_admin import ReplicaAdmin
from regnum_client.admin.describing.stray_admin import StrayAdmin
from regnum_client.admin.groups.group_admin import GroupAdmin
from regnum_client.admin.health.figures import FiguresAdmin
from regnum_client.admin.health.health_admin import HealthAdmin
from regnum_client.admin.leaders.leader_admin import LeaderAdmin
from regnum_client.admin.metadata.metadata_admin import MetadataAdmin
from regnum_client.admin.quota_admin import QuotaAdmin
from regnum_client.admin.reassignment.admin import ReassignmentAdmin
from regnum_client.admin.records.deletion import RecordAdmin
from regnum_client.admin.recovery_admin import RecoveryAdmin
from regnum_client.admin.tokens.token_admin import TokenAdmin
from regnum_client.admin.topic_admin import PartitionAdmin, TopicAdmin
from regnum_client.allowed import Between, checks_arguments
from regnum_client.cluster.view import ClusterView, TopicView

TOPIC_WAIT_S: Final = 0.5
"""How long a topic that no broker knows is waited for when it is described: news of it may be on its way."""


@checks_arguments(bounds={"timeout_s": Between(0)})
class Admin(
    TopicAdmin,
    PartitionAdmin,
    QuotaAdmin,
    ConfigAdmin,
    AclAdmin,
    RecoveryAdmin,
    ReassignmentAdmin,
    HealthAdmin,
    FiguresAdmin,
    DescribeAdmin,
    OffsetAdmin,
    ReplicaAdmin,
    StrayAdmin,
    EventAdmin,
    LeaderAdmin,
    RecordAdmin,
    GroupAdmin,
    MetadataAdmin,
    TokenAdmin,
):
    """Topics and the cluster. The plural methods answer for each topic, the singular ones raise.

    >>> async def main() -> None:
    ...     async with Admin(bootstrap) as admin:
    ...         topic = await admin.describe_topic("orders")
    ...         print(topic.name, len(topic.partitions))
    >>> asyncio.run(main())
    orders 1
    """

    async def describe_cluster(self) -> ClusterView:
        """Brokers and controller, as a broker knows them now."""
        return await self._open().newer_than(self._clock.monotonic(), timeout_s=self._timeout_s)

    async def list_topics(self) -> tuple[TopicView, ...]:
        """All topics, by name, in one answer; ``describe_topics`` gives those of a large cluster page by page."""
        view = await self._open().all_topics(timeout_s=self._timeout_s)
        return tuple(view.topics[name] for name in sorted(view.topics))

    async def describe_topic(self, name: str) -> TopicView:
        """One topic. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        metadata = self._open()
        known = await metadata.topics([name], timeout_s=self._timeout_s)
        return known.get(name) or await metadata.topic(name, timeout_s=TOPIC_WAIT_S)
