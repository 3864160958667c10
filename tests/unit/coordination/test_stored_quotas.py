"""Quotas as they are read from the store, whatever people wrote there."""

from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.recipes.folders import ensure_folders
from regnum_coordination.recipes.stored_quotas import Complaints, StoreReader, read_quotas
from regnum_model import quotas
from regnum_model.bucket import Limit
from regnum_model.quotas import DEFAULT, QuotaEntity, QuotaNode, QuotaTable
from regnum_testing.clock import FakeClock


def rate(value: float) -> bytes:
    return QuotaNode(config={quotas.RATE_KEY: str(value), quotas.BURST_KEY: "7"}).encode()


async def put(store: MemoryStore, path: str, data: bytes) -> None:
    await store.create(path, data, make_parents=True)


async def test_an_empty_store_has_no_quotas() -> None:
    store = MemoryStore(MemoryServer())
    assert (await read_quotas(StoreReader(store))).table == QuotaTable(limits={}, change=0)
    await ensure_folders(store, quotas.FOLDERS, FakeClock())
    assert (await read_quotas(StoreReader(store))).table == QuotaTable(limits={}, change=0)


async def test_every_kind_of_entity_is_found() -> None:
    store = MemoryStore(MemoryServer())
    entities = [
        QuotaEntity(),
        QuotaEntity(user="ann/b"),
        QuotaEntity(user=DEFAULT),
        QuotaEntity(client_id="app"),
        QuotaEntity(client_id=DEFAULT),
        # A user without a quota of his own, and one who has both.
        QuotaEntity(user="bob", client_id="app"),
        QuotaEntity(user="ann/b", client_id=DEFAULT),
        QuotaEntity(user=DEFAULT, client_id=DEFAULT),
    ]
    for number, entity in enumerate(entities, start=1):
        await put(store, entity.path, rate(number))
    await put(store, quotas.change_path(3), b"")
    await put(store, quotas.change_path(12), b"")
    table = (await read_quotas(StoreReader(store))).table
    assert table.change == 12
    assert table.limits == {
        entity: Limit(rate=float(number), burst=7.0) for number, entity in enumerate(entities, start=1)
    }


async def test_what_nobody_can_read_is_left_out_and_the_rest_counts() -> None:
    store = MemoryStore(MemoryServer())
    await put(store, "/config/users/ann", rate(1))
    await put(store, "/config/users/bob", b"{")
    await put(store, "/config/users/cid", b'{"config":{"controller_mutation_rate":"-1"}}')
    await put(store, "/config/users/dan", b'{"config":{"producer_byte_rate":"1"}}')
    await put(store, "/config/users/eve xx", rate(1))
    await put(store, "/config/users/eve xx/clients/app", rate(1))
    await put(store, "/config/users/fay/clients/%61", rate(1))
    await put(store, "/config/clients/%", rate(1))
    await put(store, "/config/cluster", b"\xff")
    await put(store, "/config/changes/change_x", b"")
    await put(store, "/config/changes/other", b"")
    assert (await read_quotas(StoreReader(store))).table == QuotaTable(
        limits={QuotaEntity(user="ann"): Limit(rate=1.0, burst=7.0)},
        client_rates={"producer_byte_rate": {QuotaEntity(user="dan"): 1.0}},
        change=0,
    )


async def test_rates_of_clients_are_read_by_kind_and_hostile_ones_limit_nobody() -> None:
    store = MemoryStore(MemoryServer())
    await put(store, "/config/users/ann", b'{"config":{"producer_byte_rate":"1e6","request_percentage":"50"}}')
    await put(store, "/config/clients/<default>", b'{"config":{"producer_byte_rate":"2e6"}}')
    await put(store, "/config/cluster", b'{"config":{"consumer_byte_rate":"5"}}')
    for number, value in enumerate(("nan", "inf", "-1", "0", "1e300", "many")):
        await put(store, f"/config/users/u{number}", b'{"config":{"consumer_byte_rate":"%s"}}' % value.encode())
    assert (await read_quotas(StoreReader(store))).table.client_rates == {
        "producer_byte_rate": {QuotaEntity(user="ann"): 1e6, QuotaEntity(client_id=quotas.DEFAULT): 2e6},
        "request_percentage": {QuotaEntity(user="ann"): 50.0},
    }


async def test_a_limit_that_nobody_can_read_takes_no_other_limit_of_its_node_away() -> None:
    store = MemoryStore(MemoryServer())
    await put(
        store,
        "/config/users/ann",
        b'{"config":{"controller_mutation_rate":"2","controller_mutation_burst":"7","producer_byte_rate":"fast",'
        b'"consumer_byte_rate":"10"}}',
    )
    await put(
        store,
        "/config/users/bob",
        b'{"config":{"controller_mutation_rate":"2","controller_mutation_burst":"nan","producer_byte_rate":"5"}}',
    )
    read = await read_quotas(StoreReader(store))
    ann, bob = QuotaEntity(user="ann"), QuotaEntity(user="bob")
    assert read.table.limits[ann] == Limit(rate=2.0, burst=7.0)
    # An unreadable burst is as none: that of the windows.
    assert read.table.limits[bob] == Limit(rate=2.0, burst=2.0 * quotas.DEFAULT_WINDOWS.span_s)
    assert read.table.client_rates == {"consumer_byte_rate": {ann: 10.0}, "producer_byte_rate": {bob: 5.0}}
    assert read.nodes[ann].values == {
        "consumer_byte_rate": 10.0,
        "controller_mutation_burst": 7.0,
        "controller_mutation_rate": 2.0,
    }


async def test_what_cannot_be_read_is_said_once_until_it_could_be_read_in_between(caplog) -> None:
    store, complaints = MemoryStore(MemoryServer()), Complaints()
    bad, good = b'{"config":{"producer_byte_rate":"fast"}}', b'{"config":{"producer_byte_rate":"5"}}'
    await put(store, "/config/users/ann", bad)
    said = []
    for data in (bad, bad, good, bad):
        await store.set("/config/users/ann", data, version=(await store.get("/config/users/ann")).stat.version)
        await read_quotas(StoreReader(store), complaints)
        said.append(len(caplog.records))
    assert said == [1, 1, 1, 2]
    assert "producer_byte_rate" in caplog.text


async def test_many_quotas_are_all_read() -> None:
    store = MemoryStore(MemoryServer())
    await put(store, "/config/users/x/clients/y", rate(1))
    for number in range(600):
        await store.create(f"/config/users/u{number}", rate(2))
    for number in range(60):
        await put(store, f"/config/users/u{number}/clients/c", rate(3))
    table = (await read_quotas(StoreReader(store))).table
    assert sorted(limit.rate for limit in table.limits.values()) == [1.0, *[2.0] * 600, *[3.0] * 60]


async def test_a_stale_member_of_the_store_is_not_believed() -> None:
    server = MemoryServer()
    store = MemoryStore(server)
    await put(store, "/config/users/ann", rate(1))
    server.freeze_reads()
    await put(store, "/config/users/bob", rate(1))
    await put(store, quotas.change_path(1), b"")
    table = (await read_quotas(StoreReader(store))).table
    assert (len(table.limits), table.change) == (2, 1)
