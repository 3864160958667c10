"""AlterClientQuotas and DescribeClientQuotas: what the store holds afterwards, and what is refused."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_coordination.port import Delete, Set
from regnum_coordination.recipes.mutating import CHANGES_KEPT, announcement
from regnum_election.admission.quota_book import QuotaBook
from regnum_election.admission.quota_messages import entity_message
from regnum_election.decisions.rejection import Rejection
from regnum_election.reign.reign import DeposedError
from regnum_election.reign.writing import FencedStore
from regnum_model.bucket import Limit
from regnum_model.configs import DEFAULTS
from regnum_model.mutations import REPEATED_MS
from regnum_model.quota_changes import EntityChange, LimitChange, changed_node, check_change, limit_text
from regnum_model.quotas import BURST_KEY, CHANGES, DEFAULT, RATE_KEY, QuotaEntity, QuotaNode, change_path
from regnum_service.errors import RegnumError
from regnum_service.mutations.quota_messages import entity_change, entity_of
from regnum_testing.clock import settle
from regnum_testing.quota_world import QuotaWorld, made
from regnum_testing.waiting import DEADLINE_S, until

INVALID = errors_pb2.ERROR_CODE_INVALID_REQUEST
ANN = QuotaEntity(user="ann")
PAIR = QuotaEntity(user="ann", client_id="app")
CLUSTER = QuotaEntity()


@pytest.fixture
async def world() -> AsyncIterator[QuotaWorld]:
    world = QuotaWorld()
    await world.begin()
    yield world
    await world.close()


def change(entity: QuotaEntity, **limits: float | None) -> EntityChange:
    names = {"rate": RATE_KEY, "burst": BURST_KEY}
    return EntityChange(
        entity=entity,
        limits=tuple(LimitChange(key=names.get(key, key), value=value) for key, value in limits.items()),
    )


async def alter(world: QuotaWorld, *changes: EntityChange | Rejection, validate_only: bool = False) -> list[int]:
    outcomes = await world.controller.quota_calls.alter(changes, validate_only=validate_only, wait_s=DEADLINE_S)
    return [0 if outcome is None else outcome.code for outcome in outcomes]


async def described(world: QuotaWorld, entity: QuotaEntity | None = None) -> dict[QuotaEntity, dict[str, float]]:
    found = await world.controller.quota_calls.describe(entity, wait_s=DEADLINE_S)
    return {one: dict(values) for one, values in found}


async def announced(world: QuotaWorld) -> tuple[str, ...]:
    return (await world.cluster.outside.children(CHANGES)).names


async def config(world: QuotaWorld, entity: QuotaEntity) -> dict[str, str] | None:
    if await world.cluster.outside.exists(entity.path) is None:
        return None
    config = QuotaNode.decode((await world.cluster.outside.get(entity.path)).data).config
    # The settings of the cluster stand in the same node as its quota.
    return {key: value for key, value in config.items() if key not in DEFAULTS} or (None if config else {})


async def test_each_kind_of_entity_gets_its_node(world: QuotaWorld) -> None:
    entities = [
        CLUSTER,
        ANN,
        PAIR,
        QuotaEntity(user=DEFAULT),
        QuotaEntity(user=DEFAULT, client_id=DEFAULT),
        QuotaEntity(client_id="a/b c"),
        QuotaEntity(client_id=DEFAULT),
        QuotaEntity(user="new", client_id=DEFAULT),
    ]
    assert await alter(world, *(change(entity, rate=5.0) for entity in entities)) == [0] * len(entities)
    for entity in entities:
        assert await config(world, entity) == {RATE_KEY: "5"}
    found = await world.controller.quota_calls.describe(None, wait_s=DEADLINE_S)
    assert [one for one, _ in found] == [
        CLUSTER,
        QuotaEntity(client_id=DEFAULT),
        QuotaEntity(client_id="a/b c"),
        QuotaEntity(user=DEFAULT),
        QuotaEntity(user=DEFAULT, client_id=DEFAULT),
        ANN,
        PAIR,
        QuotaEntity(user="new", client_id=DEFAULT),
    ]
    assert len(await announced(world)) == len(entities)
    assert world.controller.quotas.book.table.limits[PAIR] == Limit(rate=5.0, burst=55.0)
    assert await described(world, PAIR) == {PAIR: {RATE_KEY: 5.0}}
    assert await described(world, QuotaEntity(user="nobody")) == {}


async def test_limits_are_set_and_removed_and_other_keys_stay(world: QuotaWorld) -> None:
    await world.cluster.outside.create(ANN.path, QuotaNode(config={"connection_creation_rate": "7"}).encode())
    assert await alter(world, change(ANN, rate=2.5, burst=20.0)) == [0]
    assert await config(world, ANN) == {"connection_creation_rate": "7", RATE_KEY: "2.5", BURST_KEY: "20"}
    assert await alter(world, change(ANN, burst=None)) == [0]
    assert await described(world) == {ANN: {RATE_KEY: 2.5}}
    assert await alter(world, change(ANN, rate=None)) == [0]
    assert await config(world, ANN) == {"connection_creation_rate": "7"}
    assert await described(world) == {}


async def test_what_says_nothing_any_more_goes_and_what_changes_nothing_is_not_written(world: QuotaWorld) -> None:
    await alter(world, change(CLUSTER, rate=5.0))
    assert await alter(world, change(CLUSTER, rate=5.0), change(ANN, rate=None)) == [0, 0]
    assert await announced(world) == ("change_0000000001",)
    assert await alter(world, change(CLUSTER, rate=None)) == [0]
    assert await config(world, CLUSTER) is None
    assert await announced(world) == ("change_0000000001", "change_0000000002")


async def test_a_user_above_client_ids_stays_as_a_folder(world: QuotaWorld) -> None:
    await alter(world, change(ANN, rate=5.0), change(PAIR, rate=6.0))
    assert await alter(world, change(ANN, rate=None)) == [0]
    assert await described(world) == {PAIR: {RATE_KEY: 6.0}}
    assert (await world.cluster.outside.get(ANN.path)).data == b""
    assert await alter(world, change(PAIR, rate=None), change(ANN, rate=7.0)) == [0, 0]
    assert await described(world) == {ANN: {RATE_KEY: 7.0}}


async def test_one_wrong_entity_does_not_stop_the_others(world: QuotaWorld) -> None:
    outcomes = await alter(
        world,
        change(ANN, rate=-1.0),
        change(CLUSTER, rate=5.0),
        Rejection(code=INVALID, message="nobody knows whom it means"),
        change(PAIR, rate=1.0, speed=2.0),
        change(QuotaEntity(user="bob"), rate=1.0),
        change(QuotaEntity(user="bob"), burst=1.0),
    )
    assert outcomes == [INVALID, 0, INVALID, INVALID, INVALID, INVALID]
    assert await described(world) == {CLUSTER: {RATE_KEY: 5.0}}


async def test_validate_only_changes_nothing(world: QuotaWorld) -> None:
    assert await alter(world, change(ANN, rate=5.0), change(CLUSTER, rate=0.0), validate_only=True) == [0, INVALID]
    assert await described(world) == {}
    assert await announced(world) == ()


async def test_an_unreadable_node_is_an_error_of_that_entity(world: QuotaWorld) -> None:
    await world.cluster.outside.create(ANN.path, b"{")
    assert await alter(world, change(ANN, rate=5.0), change(CLUSTER, rate=5.0)) == [INVALID, 0]
    assert await described(world) == {CLUSTER: {RATE_KEY: 5.0}}
    assert (await world.cluster.outside.get(ANN.path)).data == b"{"


async def test_a_limit_beside_one_that_nobody_can_read_is_refused(world: QuotaWorld) -> None:
    """It would be in the store and not in force."""
    node = QuotaNode(config={BURST_KEY: "lots"}).encode()
    await world.cluster.outside.create(ANN.path, node)
    (refused,) = await world.controller.quota_calls.alter(
        (change(ANN, rate=5.0),), validate_only=False, wait_s=DEADLINE_S
    )
    assert refused is not None
    assert "controller_mutation_burst is a number from 0.000001 to 1e+12, not 'lots'" in refused.message
    assert (await world.cluster.outside.get(ANN.path)).data == node
    assert await alter(world, change(ANN, rate=5.0, burst=10.0)) == [0]
    assert await described(world, ANN) == {ANN: {RATE_KEY: 5.0, BURST_KEY: 10.0}}


async def test_who_waits_for_the_limits_hears_that_the_reign_is_over(world: QuotaWorld) -> None:
    assert world.cluster.controller_store is not None
    reign = world.controller.reign
    book = QuotaBook(
        FencedStore(world.cluster.controller_store, reign, world.clock),
        limits_changed=lambda _former, _limits: None,
        wall_ms=world.clock.wall_ms,
    )
    waiting = asyncio.create_task(book.known())
    await settle()
    assert not waiting.done()
    book.close()
    with pytest.raises(DeposedError):
        await waiting


async def test_a_conflict_is_decided_again(world: QuotaWorld) -> None:
    """Somebody writes the node between the read and the write: both changes stand in the end."""
    await alter(world, change(ANN, rate=5.0))
    store = world.cluster.controller_store
    assert store is not None
    held = world.cluster.server.hold_write(session_id=store.session_id, touching=ANN.path)
    altering = asyncio.create_task(alter(world, change(ANN, burst=20.0)))
    await held.arrived.wait()
    node = QuotaNode(config={RATE_KEY: "5", "consumer_byte_rate": "7"})
    await world.cluster.outside.multi((Set(ANN.path, node.encode(), 0),))
    while not altering.done():
        await world.clock.advance(1.0)
    assert await altering == [0]
    assert await config(world, ANN) == {RATE_KEY: "5", BURST_KEY: "20", "consumer_byte_rate": "7"}


async def test_a_lost_reply_is_settled(world: QuotaWorld) -> None:
    """Safety rule S1: the change happened, and is announced once."""
    world.cluster.server.lose_reply(touching=ANN.path)
    altering = asyncio.create_task(alter(world, change(ANN, rate=5.0)))
    while not altering.done():
        await world.clock.advance(1.0)
    assert await altering == [0]
    assert await announced(world) == ("change_0000000001",)


async def test_old_announcements_go_and_numbers_go_on(world: QuotaWorld) -> None:
    for number in range(CHANGES_KEPT + 5):
        await alter(world, change(ANN, rate=1.0 + number))
    names = await announced(world)
    assert len(names) == CHANGES_KEPT
    assert names[-1] == change_path(CHANGES_KEPT + 5).rpartition("/")[2]
    assert world.controller.quotas.book.change == CHANGES_KEPT + 5
    for name in names:
        await world.cluster.outside.multi((Delete(f"{CHANGES}/{name}", 0),))
    await alter(world, change(ANN, rate=1.0))
    assert await announced(world) == (change_path(CHANGES_KEPT + 6).rpartition("/")[2],)


async def test_numbers_go_on_after_the_last_of_ten_digits(world: QuotaWorld) -> None:
    """Whoever writes that one by hand must not keep every later reign from changing quotas."""
    await world.cluster.outside.create(change_path(9_999_999_999), b"")
    assert await alter(world, change(ANN, rate=1.0)) == [0]
    await world.cluster.end_reign()
    await world.reign(2)
    await until(lambda: world.controller.quotas.book.change == 10_000_000_000)
    assert await alter(world, change(ANN, rate=2.0)) == [0]
    for number in range(CHANGES_KEPT):
        await alter(world, change(ANN, rate=3.0 + number))
    assert len(await announced(world)) == CHANGES_KEPT
    assert change_path(9_999_999_999).rpartition("/")[2] not in await announced(world)


async def test_a_hand_edit_counts_once_it_is_announced(world: QuotaWorld) -> None:
    outside = world.cluster.outside
    await outside.set(CLUSTER.path, b'{"version":1,"config":{"controller_mutation_rate":"0.001"}}', version=None)
    await outside.create("/config/users/%zz", b"{}")
    await outside.create("/config/clients/bad", b"[]")
    await outside.create(f"{CHANGES}/by-hand", b"")
    book = world.controller.quotas.book
    await until(lambda: CLUSTER in book.table.limits, what="the hand edit is read")
    process = await world.start_process()
    world.limits.update(book.table.limits)
    assert made(await world.create(["a", "b"])) == 1
    assert len(process.requests) == 1


async def test_a_new_reign_reads_what_is_set_and_tells_the_newest_change(world: QuotaWorld) -> None:
    await world.set_quota(5.0, 50.0)
    await world.set_quota(6.0, 50.0)
    await world.cluster.end_reign()
    await world.reign(2)
    process = await world.start_process()
    await world.create(["a"])
    assert process.requests[0].changes_seen == 2
    assert process.requests[0].admissions[0].request_id.startswith("2-2-")


async def test_a_controller_that_is_none_any_more_changes_nothing(world: QuotaWorld) -> None:
    former = world.controller
    await world.cluster.end_reign()
    await world.reign(2)
    for call in (
        former.quota_calls.alter((change(ANN, rate=5.0),), validate_only=False, wait_s=DEADLINE_S),
        former.quota_calls.describe(None, wait_s=DEADLINE_S),
    ):
        with pytest.raises(RegnumError) as raised:
            await call
        assert raised.value.code == errors_pb2.ERROR_CODE_NOT_CONTROLLER
    assert await described(world) == {}


async def test_a_fenced_write_is_none(world: QuotaWorld) -> None:
    """The session lives on, and the epoch is somebody else's: the multi is refused whole."""
    outside = world.cluster.outside
    epoch = await outside.get("/controller_epoch")
    await outside.set("/controller_epoch", b"9", version=epoch.stat.version)
    with pytest.raises(RegnumError) as raised:
        await alter(world, change(ANN, rate=5.0))
    assert raised.value.code == errors_pb2.ERROR_CODE_NOT_CONTROLLER
    await settle()
    assert await outside.exists(ANN.path) is None
    assert await announced(world) == ()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (change(QuotaEntity(user="")), "1 to 249 characters"),
        (change(QuotaEntity(user="x" * 250), rate=1.0), "1 to 249 characters"),
        (change(ANN), "no limit is named"),
        (change(ANN, speed=1.0), "there is no limit 'speed'"),
        (change(ANN, rate=0.0), "not 0"),
        (change(ANN, rate=float("nan")), "not nan"),
        (change(ANN, rate=float("inf")), "not inf"),
        (change(ANN, burst=1e13), "not 1e+13"),
        (EntityChange(entity=ANN, limits=(LimitChange(key=RATE_KEY, value=1.0),) * 2), "stands twice"),
    ],
)
def test_a_change_that_can_never_be_made_says_why(wrong: EntityChange, says: str) -> None:
    refused = check_change(wrong, repeated=frozenset())
    assert refused is not None
    assert refused.code == INVALID
    assert says in refused.message


@pytest.mark.parametrize("value", [5.0, 0.1, 2.5, 1e-6, 1e12, 1 / 3])
def test_a_limit_reads_back_as_it_was_given(value: float) -> None:
    node = changed_node(QuotaNode(), (LimitChange(key=RATE_KEY, value=value),))
    assert QuotaNode.decode(node.encode()).values == {RATE_KEY: value}
    assert "e+" not in limit_text(value)


@pytest.mark.parametrize(
    "entity",
    [
        CLUSTER,
        ANN,
        PAIR,
        QuotaEntity(user=DEFAULT),
        QuotaEntity(user=DEFAULT, client_id="x"),
        QuotaEntity(client_id="x"),
    ],
)
def test_an_entity_survives_the_wire(entity: QuotaEntity) -> None:
    assert entity_of(entity_message(entity)) == entity


@pytest.mark.parametrize(
    ("subject", "says"),
    [
        (admin_pb2.QuotaSubject(), "neither a name nor default_for_all"),
        (admin_pb2.QuotaSubject(name="x", default_for_all=True), "together with default_for_all"),
    ],
)
def test_a_subject_that_is_none_is_refused(subject: admin_pb2.QuotaSubject, says: str) -> None:
    for entity in (admin_pb2.QuotaEntity(user=subject), admin_pb2.QuotaEntity(client_id=subject)):
        refused = entity_change(admin_pb2.QuotaAlteration(entity=entity))
        assert isinstance(refused, Rejection)
        assert says in refused.message


def test_an_operation_sets_or_removes() -> None:
    alteration = admin_pb2.QuotaAlteration(
        entity=admin_pb2.QuotaEntity(),
        operations=[
            admin_pb2.QuotaOperation(key=RATE_KEY, value=5.0),
            admin_pb2.QuotaOperation(key=BURST_KEY, value=5.0, remove=True),
        ],
    )
    assert entity_change(alteration) == change(CLUSTER, rate=5.0, burst=None)


async def test_a_missing_folder_is_said_and_does_not_hold_up_others(world: QuotaWorld) -> None:
    await world.cluster.outside.multi((Delete("/config/clients", 0),))
    outcomes = await alter(world, change(QuotaEntity(client_id="app"), rate=5.0), change(ANN, rate=5.0))
    assert outcomes == [INVALID, 0]


async def test_quotas_are_read_for_quotas_and_not_for_each_setting_or_rule(world: QuotaWorld) -> None:
    outside, book = world.cluster.outside, world.controller.quotas.book
    assert await alter(world, change(ANN, rate=5.0)) == [0]
    await settle(50)
    # Known to nobody before somebody reads.
    await outside.set(ANN.path, QuotaNode(config={RATE_KEY: "9"}).encode(), version=0)
    for number in range(2, 22):
        await outside.create(change_path(number), announcement("/config/topics/t" if number % 2 else "/acl/topic/t"))
        name = change_path(number).rpartition("/")[2]
        await until(lambda name=name: book.has_seen(name), what="the announcement is seen")
    assert book.table.limits[ANN].rate == 5.0
    # A quota process that has seen the newest change of a quota need not catch up.
    assert book.change == 1
    await outside.create(change_path(22), announcement(ANN.path))
    await until(lambda: book.table.limits[ANN].rate == 9.0, what="the quota is read")
    assert book.change == 22
    assert await alter(world, change(ANN, rate=7.0)) == [0]
    assert (book.table.limits[ANN].rate, book.change) == (7.0, 23)


async def test_what_is_announced_under_a_lower_number_is_read_too(world: QuotaWorld) -> None:
    outside = world.cluster.outside
    await outside.create(change_path(7), b"")
    assert await alter(world, change(ANN, rate=5.0)) == [0]
    assert await announced(world) == ("change_0000000007", "change_0000000008")
    await outside.set(ANN.path, QuotaNode(config={RATE_KEY: "9"}).encode(), version=0)
    await outside.create(change_path(1), b"")
    book = world.controller.quotas.book
    await until(lambda: book.table.limits[ANN].rate == 9.0, what="the hand edit is read")
    await outside.multi((Delete(change_path(1), 0),))
    await outside.set(ANN.path, QuotaNode(config={RATE_KEY: "10"}).encode(), version=1)
    await until(lambda: not book.has_seen("change_0000000001"), what="the removal is seen")
    await outside.create(change_path(1), b"")
    await until(lambda: book.table.limits[ANN].rate == 10.0, what="the second hand edit is read")


async def test_the_node_of_a_removed_quota_stays_while_its_removal_may_be_repeated_and_then_goes(
    world: QuotaWorld,
) -> None:
    for limit, id in ((5.0, "a"), (None, "b")):
        outcomes = await world.controller.quota_calls.alter(
            [change(ANN, rate=limit)], validate_only=False, wait_s=DEADLINE_S, mutation=id
        )
        assert outcomes == (None,)
    assert await described(world) == {}
    assert await world.cluster.outside.exists(ANN.path) is not None
    await world.controller.quota_calls.alter(
        [change(ANN, rate=5.0)], validate_only=False, wait_s=DEADLINE_S, mutation="a"
    )
    assert await described(world) == {}
    assert await alter(world, change(QuotaEntity(client_id="x"), rate=1.0)) == [0]
    assert await world.cluster.outside.exists(ANN.path) is not None
    world.clock.skip(REPEATED_MS / 1000 + 1)
    assert await alter(world, change(QuotaEntity(client_id="x"), rate=2.0)) == [0]
    assert await world.cluster.outside.exists(ANN.path) is None
