"""Settings of a broker: what counts, who hears of it, and what is never shown."""

import asyncio
from pathlib import Path

import pytest
from regnum_broker.compaction.pace import Pace
from regnum_broker.configs.dynamic import DynamicConfigs
from regnum_broker.configs.flags import DYNAMIC, is_sensitive
from regnum_broker.configs.values import BROKER, CLUSTER, DEFAULT, FLAG, Stored, in_force, read_node
from regnum_broker.configs.watch import follow_configs
from regnum_broker.maintenance import ProducerExpiry
from regnum_broker.replication.throttle import UNLIMITED, ReplicationThrottle, ThrottleRates
from regnum_broker.settings import BrokerSettings
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Store
from regnum_coordination.recipes.config_mutations import config_mutation
from regnum_coordination.recipes.folders import ensure_folders
from regnum_coordination.recipes.mutating import Carried, NodeMutations
from regnum_coordination.recipes.resolved_store import ResolvedStore
from regnum_model import paths
from regnum_model.broker_configs import (
    CLEANER_PROCESSOR_PERCENTAGE,
    GROUP_MAX_SIZE,
    LEADER_THROTTLE_RATE,
    PRODUCER_ID_EXPIRATION_MS,
)
from regnum_model.config_changes import Alteration, Operation, Resource, ResourceType
from regnum_model.configs import BROKER_KEYS, DEFINITIONS, broker_config, encode_config
from regnum_model.configs import CLUSTER as CLUSTER_NODE
from regnum_model.ids import BrokerId, LeaderEpoch
from regnum_model.rejection import Rejection
from regnum_model.shares import Shares
from regnum_service.clock import SystemClock
from regnum_service.limits.held_bytes import HeldBytes, Purpose
from regnum_testing.batches import batch_of
from regnum_testing.clock import FakeClock
from regnum_testing.leading_replicas import LeadingReplicas
from regnum_testing.waiting import DEADLINE_S, until

OWN = broker_config(3)


def settings(tmp_path: Path, **given: object) -> BrokerSettings:
    told: dict[str, object] = {
        "broker_id": 3,
        "client_listen": "127.0.0.1:9092",
        "internal_listen": "127.0.0.1:9093",
        "data_dir": tmp_path,
        "coordination": "etcd://127.0.0.1:2379",
        **given,
    }
    return BrokerSettings.model_validate(told)


def test_a_brokers_own_value_goes_before_the_clusters_that_before_its_flag_and_that_before_the_default() -> None:
    flags, cluster, own = {GROUP_MAX_SIZE: 7}, {GROUP_MAX_SIZE: 8}, {GROUP_MAX_SIZE: 9}
    assert in_force(GROUP_MAX_SIZE, Stored(own=own, cluster=cluster), flags) == (9, BROKER)
    assert in_force(GROUP_MAX_SIZE, Stored(cluster=cluster), flags) == (8, CLUSTER)
    assert in_force(GROUP_MAX_SIZE, Stored(), flags) == (7, FLAG)
    assert in_force(GROUP_MAX_SIZE, Stored(), {}) == (DEFINITIONS[GROUP_MAX_SIZE].default, DEFAULT)


def test_every_flag_that_a_definition_names_is_one_and_has_its_default(tmp_path: Path) -> None:
    told = settings(tmp_path)
    assert len(DYNAMIC) == 6
    for field, key in DYNAMIC.items():
        assert getattr(told, field) == DEFINITIONS[key].default, key


def test_a_node_that_nobody_can_read_changes_nothing_and_says_why() -> None:
    before = {GROUP_MAX_SIZE: 5}
    for data in (b"{", b"[]", b'{"config":7}', encode_config({GROUP_MAX_SIZE: "many"})):
        reading = read_node(data, before)
        assert reading.values == before
        assert reading.problem
    assert read_node(encode_config({GROUP_MAX_SIZE: "6", "a.key": "x"}), before) == read_node(
        encode_config({GROUP_MAX_SIZE: "6"}), {}
    )
    assert read_node(None, before).values == {}
    assert read_node(b"", before).values == {}


def test_who_acts_by_a_setting_hears_of_the_present_value_and_of_each_other_one(tmp_path: Path) -> None:
    configs, heard = DynamicConfigs(settings(tmp_path, group_max_size=7)), list[int]()
    configs.on(GROUP_MAX_SIZE, heard.append)
    configs.take(Stored(own={GROUP_MAX_SIZE: 9}))
    configs.take(Stored(own={GROUP_MAX_SIZE: 9}, cluster={PRODUCER_ID_EXPIRATION_MS: 1}))
    configs.take(Stored())
    assert heard == [7, 9, 7]
    with pytest.raises(ValueError, match="no setting of brokers"):
        configs.on("min.insync.replicas", heard.append)


def test_everything_that_a_broker_runs_with_is_shown_and_no_secret(tmp_path: Path) -> None:
    told = settings(tmp_path, coordination="etcd://ann:hunter2@127.0.0.1:2379", group_max_size=7)
    configs = DynamicConfigs(told)
    configs.take(Stored(cluster={CLEANER_PROCESSOR_PERCENTAGE: 50}))
    shown = {one.name: one for one in configs.described()}
    assert shown.keys() >= BROKER_KEYS
    hidden = {"failpoint_file"}
    assert len(shown) == len(BrokerSettings.model_fields) - len(hidden) - len(DYNAMIC) + len(BROKER_KEYS)
    assert "failpoint.file" not in shown
    assert (shown[GROUP_MAX_SIZE].value, shown[GROUP_MAX_SIZE].source) == ("7", FLAG)
    assert shown[CLEANER_PROCESSOR_PERCENTAGE].source == CLUSTER
    assert not shown[GROUP_MAX_SIZE].read_only
    assert (shown["data.dir"].value, shown["data.dir"].read_only) == (str(tmp_path), True)
    assert shown["replica.lag.s"].source == DEFAULT
    assert all(one.documentation for one in shown.values())
    secret = shown["coordination"]
    assert (secret.sensitive, secret.value) == (True, "")
    assert "hunter2" not in str(list(shown.values()))


@pytest.mark.parametrize("field", ["store_password", "token_secret", "a_private_key_file", "credentials"])
def test_a_flag_that_is_called_a_secret_is_one(field: str) -> None:
    assert is_sensitive(field, "x")
    assert not is_sensitive("group_max_size", 7)


async def changed(store: Store, resource: Resource, key: str, value: str | None, id: str) -> Carried | Rejection:
    clock = FakeClock()
    mutations = NodeMutations(ResolvedStore(store, clock, deadline_s=5), wall_ms=clock.wall_ms)
    alteration = Alteration(resource=resource, operations=(Operation(key=key, value=value),))
    return await mutations.carry_out(config_mutation(alteration, id=id))


async def test_what_is_announced_is_in_force_without_a_restart_and_through_a_lost_session(tmp_path: Path) -> None:
    server = MemoryServer()
    outside = MemoryStore(server)
    await ensure_folders(outside, paths.PERSISTENT_FOLDERS, FakeClock())
    await outside.create(paths.broker_epoch(BrokerId(3)), b"")
    sessions = [MemoryStore(server)]
    configs, heard = DynamicConfigs(settings(tmp_path)), list[int]()
    configs.on(GROUP_MAX_SIZE, heard.append)

    async def wait_store() -> Store:
        return sessions[-1]

    following = asyncio.create_task(follow_configs(BrokerId(3), wait_store, configs, SystemClock()))
    own, cluster = Resource(type=ResourceType.BROKER, name="3"), Resource(type=ResourceType.CLUSTER)
    try:
        assert isinstance(await changed(outside, cluster, GROUP_MAX_SIZE, "50", "a"), Carried)
        await until(lambda: heard[-1] == 50)
        assert isinstance(await changed(outside, own, GROUP_MAX_SIZE, "40", "b"), Carried)
        await until(lambda: heard[-1] == 40)
        assert isinstance(await changed(outside, own, GROUP_MAX_SIZE, None, "c"), Carried)
        await until(lambda: heard[-1] == 50)
        sessions.append(MemoryStore(server))
        server.expire(sessions[0].session_id)
        assert isinstance(await changed(outside, own, GROUP_MAX_SIZE, "30", "d"), Carried)
        await until(lambda: heard[-1] == 30)
        # Of another broker, and of something else: nothing is read for it, and nothing changes.
        await outside.create(paths.broker_epoch(BrokerId(4)), b"")
        other = Resource(type=ResourceType.BROKER, name="4")
        assert isinstance(await changed(outside, other, GROUP_MAX_SIZE, "20", "e"), Carried)
        await outside.set(CLUSTER_NODE, b"junk", version=None)
        await outside.create("/config/changes/by-hand", b"")
        assert isinstance(await changed(outside, own, GROUP_MAX_SIZE, "10", "f"), Carried)
        await until(lambda: heard[-1] == 10)
        assert 20 not in heard
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def test_what_nobody_could_read_since_the_start_is_not_known_and_what_was_known_stays_so(tmp_path: Path) -> None:
    """Else a typing error in the store has a broker that starts forget what was to be kept for a year."""
    outside = MemoryStore(MemoryServer())
    await ensure_folders(outside, paths.PERSISTENT_FOLDERS, FakeClock())
    await outside.create(CLUSTER_NODE, encode_config({PRODUCER_ID_EXPIRATION_MS: "a year", GROUP_MAX_SIZE: "50"}))
    configs = DynamicConfigs(settings(tmp_path))
    assert not any(configs.is_known(key) for key in BROKER_KEYS)

    async def wait_store() -> Store:
        return outside

    async def write(data: bytes, size: int) -> None:
        await outside.set(CLUSTER_NODE, data, version=None)
        await outside.set(OWN, encode_config({GROUP_MAX_SIZE: str(size)}), version=None)
        await outside.create(f"/config/changes/by-hand-{size}", b"")
        await until(lambda: configs.value(GROUP_MAX_SIZE) == size)

    await outside.create(OWN, b"")
    following = asyncio.create_task(follow_configs(BrokerId(3), wait_store, configs, SystemClock()))
    try:
        await until(lambda: configs.value(GROUP_MAX_SIZE) == 50)
        assert {key for key in BROKER_KEYS if not configs.is_known(key)} == {PRODUCER_ID_EXPIRATION_MS}
        await write(b"junk", 40)
        assert not configs.is_known(PRODUCER_ID_EXPIRATION_MS)
        await write(encode_config({}), 30)
        assert configs.is_known(PRODUCER_ID_EXPIRATION_MS)
        await write(b"junk", 20)
        assert configs.is_known(PRODUCER_ID_EXPIRATION_MS)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def test_no_producer_is_forgotten_while_nobody_knows_when_it_is_to_be(tmp_path: Path) -> None:
    clock = FakeClock()
    async with LeadingReplicas(tmp_path, partitions=1, clock=clock) as leading:
        log, known = leading.partition().log, False
        batch = batch_of(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
        await leading.storage.write(lambda: log.append_as_leader([batch], leader_epoch=LeaderEpoch(0)))
        seen_ms = log.producers.entries[7].seen_ms
        clock.skip((seen_ms - clock.wall_ms()) / 1000 + 1_000)
        expiry = ProducerExpiry(
            storage=leading.storage,
            expiration_ms=1,
            clock=clock,
            expiry_now_ms=clock.wall_ms,
            may_forget=lambda: known,
        )
        await expiry.expire()
        assert set(log.producers.entries) == {7}
        known = True
        await expiry.expire()
        assert not log.producers.entries


async def test_settings_of_a_broker_that_never_was_are_refused() -> None:
    store = MemoryStore(MemoryServer())
    await ensure_folders(store, paths.PERSISTENT_FOLDERS, FakeClock())
    refused = await changed(store, Resource(type=ResourceType.BROKER, name="33"), GROUP_MAX_SIZE, "9", "a")
    assert isinstance(refused, Rejection)
    assert "never been a broker 33" in refused.message
    assert await store.exists(broker_config(33), current=True) is None


def test_a_brokers_own_throttle_goes_before_the_one_that_orders_bring() -> None:
    throttle = ReplicationThrottle(FakeClock())
    throttle.set_rates(ThrottleRates(leader=1_000_000, follower=0))
    assert throttle.sending.share().allowance() != UNLIMITED
    throttle.set_own(leader=0, follower=2_000_000)
    assert throttle.sending.share().allowance() == UNLIMITED
    assert throttle.taking.share().allowance() != UNLIMITED
    throttle.set_rates(ThrottleRates(leader=5_000, follower=5_000))
    assert throttle.sending.share().allowance() == UNLIMITED
    throttle.set_own(leader=None, follower=None)
    assert throttle.sending.share().allowance() != UNLIMITED
    assert LEADER_THROTTLE_RATE in BROKER_KEYS


def test_compaction_goes_on_at_the_pace_that_is_set() -> None:
    clock, rests = FakeClock(), list[float]()

    def wait(seconds: float) -> bool:
        rests.append(seconds)
        return False

    pace = Pace(clock, wait)
    pace.begin()
    for percentage in (25, 50, 100, 1):
        pace.set(percentage)
        clock.skip(0.01)
        pace.went_on()
    assert rests == pytest.approx([0.03, 0.01, 0.0, 0.99])


async def test_bounds_on_held_bytes_change_for_those_who_come_and_those_who_wait() -> None:
    held = HeldBytes(Shares(total_max=100, connection_max=60))
    assert held.take("a", 60, Purpose.PRODUCE)
    waiting = asyncio.create_task(held.wait_for("b", 90, Purpose.FETCH))
    await asyncio.sleep(0)
    assert not waiting.done()
    held.share(Shares(total_max=1_000, connection_max=600))
    await asyncio.wait_for(waiting, DEADLINE_S)
    assert held.total == 150
    held.share(Shares(total_max=64, connection_max=64))
    assert not held.take("c", 10, Purpose.PRODUCE)
    assert held.total == 150
