"""Which store a cluster uses: what was asked for against what its folder remembers."""

from pathlib import Path

import pytest
from regnum_local.plan import EMPTY, Plan, Role, grow
from regnum_local.store_choice import StoreChoice, StoreRefusedError, choose_store
from regnum_service.errors import ExitStatus

FOLDER = Path("/d")
ETCD = StoreChoice(embedded=Role.ETCD, url=None)
ZOOKEEPER = StoreChoice(embedded=Role.ZOOKEEPER, url=None)
URLS = ("etcd://h1:2379,h2:2379/regnum?max_txn_ops=2000", "zookeeper://h1:2181,h2:2181/regnum")


def plan_with(store: Role | None) -> Plan:
    return grow(
        EMPTY,
        brokers=1,
        elections=1,
        store=store,
        is_free=lambda _port: True,
        choose=lambda taken: max(taken, default=15_000) + 1,
    )


@pytest.mark.parametrize(("asked", "choice"), [(None, ETCD), ("etcd", ETCD), ("zookeeper", ZOOKEEPER)])
def test_a_new_folder_takes_what_is_asked_for_and_etcd_otherwise(asked: str | None, choice: StoreChoice) -> None:
    assert choose_store(asked, EMPTY, FOLDER) == choice


@pytest.mark.parametrize("url", URLS)
def test_a_running_store_is_used_by_a_new_folder_and_by_one_that_used_a_running_store(url: str) -> None:
    """Members of a store come and go: its URL may change, and its cluster id says whether it is the same."""
    for known in (EMPTY, plan_with(None)):
        assert choose_store(url, known, FOLDER) == StoreChoice(embedded=None, url=url)


@pytest.mark.parametrize("store", [Role.ETCD, Role.ZOOKEEPER])
def test_a_folder_comes_back_with_its_store(store: Role) -> None:
    for asked in (None, store.value):
        assert choose_store(asked, plan_with(store), FOLDER) == StoreChoice(embedded=store, url=None)


@pytest.mark.parametrize(
    ("store", "asked"),
    [
        *((Role.ETCD, other) for other in ("zookeeper", *URLS)),
        *((Role.ZOOKEEPER, other) for other in ("etcd", *URLS)),
    ],
)
def test_a_folder_refuses_another_store_than_its_own(store: Role, asked: str) -> None:
    with pytest.raises(
        StoreRefusedError, match=f"an embedded {store.value}; go on with .* or choose another"
    ) as caught:
        choose_store(asked, plan_with(store), FOLDER)
    assert caught.value.exit_status is ExitStatus.CONFLICT


@pytest.mark.parametrize("asked", [None, "etcd", "zookeeper"])
def test_a_folder_whose_store_runs_elsewhere_needs_the_url(asked: str | None) -> None:
    with pytest.raises(StoreRefusedError, match="give its URL with --coordination"):
        choose_store(asked, plan_with(None), FOLDER)


@pytest.mark.parametrize("asked", ["", "consul", "ETCD", "http://h:2379", "etcd:/h", "memory://one", "127.0.0.1:2379"])
def test_other_words_are_wrong_use(asked: str) -> None:
    with pytest.raises(StoreRefusedError, match=r"use etcd, zookeeper .* etcd://host:2379") as caught:
        choose_store(asked, EMPTY, FOLDER)
    assert caught.value.exit_status is ExitStatus.WRONG_USE
