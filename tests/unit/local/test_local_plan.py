"""Members, ports and command lines of a local cluster."""

from pathlib import Path
from typing import Any

import pytest
from regnum_coordination.drivers.etcd.address import EtcdAddress
from regnum_local.plan import CLUSTER_CA, EMPTY, STORE_PEER_CA, Launch, Plan, Role, command, grow, store_url
from regnum_service.errors import StartRefusedError


def counter(first: int = 15_000):
    """A choice of ports that keeps its word about those that are taken."""

    def choose(taken):
        port = first
        while port in taken:
            port += 1
        return port

    return choose


def make(plan: Plan = EMPTY, *, brokers=3, elections=3, store=Role.ETCD, busy=(), first=15_000, **more: Any) -> Plan:
    return grow(
        plan,
        brokers=brokers,
        elections=elections,
        store=store,
        is_free=lambda port: port not in busy,
        choose=counter(first),
        **more,
    )


def names(plan: Plan) -> list[str]:
    return [member.name for member in plan.members]


def test_store_first_then_elections_then_brokers():
    plan = make(brokers=2, elections=1)
    assert names(plan) == ["etcd", "election-1", "broker-1", "broker-2"]
    ports = list(plan.ports)
    assert len(ports) == len(set(ports)) == 2 + 4 + 2 * 4


def test_a_plan_survives_its_file():
    plan = make()
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    "value",
    [[], {}, {"version": 2, "members": []}, {"version": 1, "members": [{"role": "king", "id": 1, "ports": {}}]}],
)
def test_a_file_that_says_something_else_is_refused(value):
    with pytest.raises((KeyError, TypeError, ValueError)):
        Plan.from_json(value)


def test_clients_find_brokers_from_the_base_on_and_nothing_else_there():
    plan = make(port_base=15_001, brokers=2)
    assert [member.ports["client"] for member in plan.of(Role.BROKER)] == [15_001, 15_002]
    assert len(set(plan.ports)) == len(list(plan.ports))
    grown = make(plan, port_base=15_001, brokers=3)
    assert [member.ports["client"] for member in grown.of(Role.BROKER)] == [15_001, 15_002, 15_003]
    assert make(grown, first=20_000) == grown, "the folder remembers"


def test_a_base_that_is_taken_is_refused():
    with pytest.raises(StartRefusedError, match="port 9093 of broker-2 is taken"):
        make(port_base=9092, busy={9093})


def test_a_base_moves_what_had_the_ports():
    plan = make()
    moved = make(plan, port_base=15_000)
    assert [member.ports["client"] for member in moved.of(Role.BROKER)] == [15_000, 15_001, 15_002]
    assert len(set(moved.ports)) == len(list(moved.ports))


def test_ports_stay():
    plan = make()
    assert make(plan, first=20_000) == plan


def test_a_folder_of_an_earlier_release_gets_the_listeners_that_came_later():
    plan, content = make(), make().to_json()
    for member in content["members"]:
        member["ports"].pop("kafka", None)
        member["ports"].pop("metrics", None)
    again = make(Plan.from_json(content), first=20_000)
    assert [set(member.ports) for member in again.members] == [set(member.ports) for member in plan.members]
    assert again.get("broker-1").ports["client"] == plan.get("broker-1").ports["client"]


def test_only_a_port_that_somebody_took_is_chosen_anew():
    plan = make()
    broker = plan.get("broker-2")
    busy = broker.ports["client"]
    again = make(plan, busy=(busy,), first=20_000)
    assert again.get("broker-2").ports == {**broker.ports, "client": 20_000}
    assert [member for member in again.members if member.name != "broker-2"] == [
        member for member in plan.members if member.name != "broker-2"
    ]


def test_a_cluster_grows_and_never_shrinks():
    plan = make(brokers=3)
    assert make(plan, brokers=1, elections=1) == plan
    grown = make(plan, brokers=5)
    assert len(grown.of(Role.BROKER)) == 5
    assert all(member in grown.members for member in plan.members)


def test_a_store_elsewhere_needs_no_etcd():
    assert names(make(brokers=1, elections=1, store=None)) == ["election-1", "broker-1"]


def test_command_lines():
    plan = make(brokers=1, elections=1)
    launch = Launch(
        python="/py",
        store=("/etcd",),
        data_dir=Path("/d"),
        coordination=store_url(plan),
        replication_factor=1,
        extra={Role.BROKER: ["--rack", "a"]},
    )
    assert store_url(plan).startswith("etcd://127.0.0.1:15000")
    etcd = command(plan.get("etcd"), launch)
    assert etcd[:5] == ["/etcd", "--name", "regnum", "--data-dir", "/d/etcd"]
    assert "--experimental-initial-corrupt-check" in etcd
    assert not any("fsync" in flag for flag in etcd)
    assert command(plan.get("election-1"), launch) == [
        *("/py", "-P", "-m", "regnum_election", "--election-id", "1", "--run-dir", "/d/election-1"),
        *("--default-replication-factor", "1"),
        *("--traces-dir", "/d/traces"),
        *("--coordination", store_url(plan), "--client-listen", "127.0.0.1:15002"),
        *("--internal-listen", "127.0.0.1:15003", "--lifeline-listen", "127.0.0.1:15004"),
        *("--metrics-listen", "127.0.0.1:15005"),
    ]
    assert command(plan.get("broker-1"), launch) == [
        *("/py", "-P", "-m", "regnum_broker", "--broker-id", "1", "--data-dir", "/d/broker-1"),
        *("--termination-grace-s", "0"),
        *("--traces-dir", "/d/traces"),
        *("--coordination", store_url(plan), "--client-listen", "127.0.0.1:15006"),
        *("--internal-listen", "127.0.0.1:15007", "--metrics-listen", "127.0.0.1:15008"),
        *("--kafka-listen", "127.0.0.1:15009", "--rack", "a"),
    ]


def test_an_embedded_zookeeper_takes_the_place_of_etcd():
    plan = make(brokers=1, elections=1, store=Role.ZOOKEEPER)
    assert names(plan) == ["zookeeper", "election-1", "broker-1"]
    assert plan.store is plan.get("zookeeper")
    assert Plan.from_json(plan.to_json()) == plan
    assert store_url(plan) == "zookeeper://127.0.0.1:15000"
    launch = Launch(python="/py", store=("/java", "Main"), data_dir=Path("/d"), coordination=store_url(plan), extra={})
    assert command(plan.store, launch) == ["/java", "Main", "/d/zookeeper/zoo.cfg"]
    broker = command(plan.get("broker-1"), launch)
    assert broker[broker.index("--coordination") + 1] == "zookeeper://127.0.0.1:15000"


def test_a_cluster_over_tls_reaches_its_store_over_tls_and_each_process_shows_its_own_certificate():
    plan, folder = make(brokers=1, elections=1), Path("/d/a b/certs")
    url = store_url(plan, folder, shows="broker-1")
    assert url == (
        "etcd://127.0.0.1:15000?max_txn_ops=2000&ca=/d/a+b/certs/cluster-ca.pem&cert=/d/a+b/certs/broker-1.pem"
        "&key=/d/a+b/certs/broker-1.key"
    )
    read = EtcdAddress.parse(url)
    assert (read.max_txn_ops, read.credentials.ca) == (2000, folder / CLUSTER_CA)
    assert "cert=/d/a+b/certs/store-admin.pem" in store_url(plan, folder), "commands show one of their own"
    launch = Launch(
        python="/py", store=("/etcd",), data_dir=Path("/d"), coordination=url, extra={}, certificates=folder
    )
    etcd = command(plan.get("etcd"), launch)
    assert "--client-cert-auth" in etcd
    assert etcd[etcd.index("--trusted-ca-file") + 1] == str(folder / CLUSTER_CA)
    assert "--peer-client-cert-auth" in etcd
    assert etcd[etcd.index("--peer-trusted-ca-file") + 1] == str(folder / STORE_PEER_CA)
    assert not any("http://" in flag for flag in etcd), "neither listener speaks plaintext"


def test_a_store_elsewhere_has_no_url_in_the_plan():
    with pytest.raises(ValueError, match="elsewhere"):
        store_url(make(store=None))


def test_only_listeners_for_clients_leave_loopback_and_the_folder_remembers_where_they_are() -> None:
    before = make()
    plan = Plan.from_json(make(before, bind="10.0.0.5").to_json())
    hosts = {(one.name, name): one.address(name).host for one in plan.members for name in one.ports}
    outside = {key for key, host in hosts.items() if host == "10.0.0.5"}
    assert {name for _, name in outside} == {"client", "kafka"}
    assert ("etcd", "client") not in outside
    assert set(hosts.values()) == {"127.0.0.1", "10.0.0.5"}
    assert make(plan) == plan
    assert make(plan, bind="127.0.0.1") == before
