"""Administration for services without asyncio."""

from collections.abc import Sequence

from regnum_service.channel import Channels
from regnum_service.tls.files import TlsFiles

from regnum_client.admin.admin import Admin as AsyncAdmin
from regnum_client.allowed import checks_arguments
from regnum_client.sync.bridge import Blocking, Bridge, Face, Iterating


@checks_arguments()
class Admin(Face[AsyncAdmin]):
    """Topics and the cluster, from any thread. The plural methods answer for each topic, the singular ones raise.

    >>> from regnum_client.sync import Admin
    >>> with Admin(bootstrap) as admin:
    ...     len(admin.describe_topic("orders").partitions)
    1
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str] | None = None,
        *,
        timeout_s: float = 30.0,
        client_id: str = "regnum-admin",
        channels: Channels | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        super().__init__(
            Bridge(
                "admin client",
                lambda: AsyncAdmin(bootstrap, timeout_s=timeout_s, client_id=client_id, channels=channels, tls=tls),
            )
        )

    alter_client_quota = Blocking(AsyncAdmin.alter_client_quota)
    alter_client_quotas = Blocking(AsyncAdmin.alter_client_quotas)
    alter_config = Blocking(AsyncAdmin.alter_config)
    alter_configs = Blocking(AsyncAdmin.alter_configs)
    alter_group_offsets = Blocking(AsyncAdmin.alter_group_offsets)
    alter_partition_reassignments = Blocking(AsyncAdmin.alter_partition_reassignments)
    check_acl = Blocking(AsyncAdmin.check_acl)
    check_group_is_empty = Blocking(AsyncAdmin.check_group_is_empty)
    compare_metadata = Blocking(AsyncAdmin.compare_metadata)
    create_acl = Blocking(AsyncAdmin.create_acl)
    create_acls = Blocking(AsyncAdmin.create_acls)
    create_delegation_token = Blocking(AsyncAdmin.create_delegation_token)
    create_partitions = Blocking(AsyncAdmin.create_partitions)
    create_partitions_of_topics = Blocking(AsyncAdmin.create_partitions_of_topics)
    create_topic = Blocking(AsyncAdmin.create_topic)
    create_topics = Blocking(AsyncAdmin.create_topics)
    delete_acls = Blocking(AsyncAdmin.delete_acls)
    delete_group = Blocking(AsyncAdmin.delete_group)
    delete_group_offsets = Blocking(AsyncAdmin.delete_group_offsets)
    delete_partitions = Blocking(AsyncAdmin.delete_partitions)
    delete_partitions_of_topics = Blocking(AsyncAdmin.delete_partitions_of_topics)
    delete_records = Blocking(AsyncAdmin.delete_records)
    delete_topic = Blocking(AsyncAdmin.delete_topic)
    delete_topics = Blocking(AsyncAdmin.delete_topics)
    describe_acls = Blocking(AsyncAdmin.describe_acls)
    describe_broker = Blocking(AsyncAdmin.describe_broker)
    describe_brokers = Blocking(AsyncAdmin.describe_brokers)
    describe_client_quotas = Blocking(AsyncAdmin.describe_client_quotas)
    describe_client_usage = Blocking(AsyncAdmin.describe_client_usage)
    describe_cluster = Blocking(AsyncAdmin.describe_cluster)
    describe_config = Blocking(AsyncAdmin.describe_config)
    describe_configs = Blocking(AsyncAdmin.describe_configs)
    describe_delegation_tokens = Blocking(AsyncAdmin.describe_delegation_tokens)
    describe_events = Blocking(AsyncAdmin.describe_events)
    describe_figures = Blocking(AsyncAdmin.describe_figures)
    describe_group = Blocking(AsyncAdmin.describe_group)
    describe_health = Blocking(AsyncAdmin.describe_health)
    describe_propagation = Blocking(AsyncAdmin.describe_propagation)
    describe_quota_usage = Blocking(AsyncAdmin.describe_quota_usage)
    describe_replicas = Blocking(AsyncAdmin.describe_replicas)
    describe_strays = Iterating(AsyncAdmin.describe_strays)
    describe_topic = Blocking(AsyncAdmin.describe_topic)
    describe_topics = Iterating(AsyncAdmin.describe_topics)
    drain_broker = Blocking(AsyncAdmin.drain_broker)
    elect_leaders = Blocking(AsyncAdmin.elect_leaders)
    events_after = Iterating(AsyncAdmin.events_after)
    expire_delegation_token = Blocking(AsyncAdmin.expire_delegation_token)
    forget_broker = Blocking(AsyncAdmin.forget_broker)
    give_up_partitions = Blocking(AsyncAdmin.give_up_partitions)
    last_events = Blocking(AsyncAdmin.last_events)
    list_group_offsets = Blocking(AsyncAdmin.list_group_offsets)
    list_groups = Blocking(AsyncAdmin.list_groups)
    list_max_timestamps = Blocking(AsyncAdmin.list_max_timestamps)
    list_offline_partitions = Blocking(AsyncAdmin.list_offline_partitions)
    list_offsets = Blocking(AsyncAdmin.list_offsets)
    list_offsets_at = Blocking(AsyncAdmin.list_offsets_at)
    list_partition_reassignments = Blocking(AsyncAdmin.list_partition_reassignments)
    list_topics = Blocking(AsyncAdmin.list_topics)
    recover_partitions = Blocking(AsyncAdmin.recover_partitions)
    renew_delegation_token = Blocking(AsyncAdmin.renew_delegation_token)
    replace_configs = Blocking(AsyncAdmin.replace_configs)
    resign_controller = Blocking(AsyncAdmin.resign_controller)
    summarize_topics = Iterating(AsyncAdmin.summarize_topics)
