"""Quotas in the store: paths of entities, contents of nodes, whatever people write into them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_model import quotas
from regnum_model.bucket import Limit, Windows
from regnum_model.nodes import Address, MalformedNodeError
from regnum_model.quota_terms import QuotaTermsNode
from regnum_model.quotas import BURST_KEY, DEFAULT, RATE_KEY, QuotaEntity, QuotaNode, QuotaProcessNode

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("entity", "path", "folders", "text"),
    [
        (QuotaEntity(), "/config/cluster", (), "the cluster"),
        (QuotaEntity(user="ann"), "/config/users/ann", (), "user ann"),
        (QuotaEntity(user=DEFAULT), "/config/users/<default>", (), "user <default>"),
        (QuotaEntity(client_id="app 1"), "/config/clients/app%201", (), "client id app 1"),
        (
            QuotaEntity(user="<default>", client_id=DEFAULT),
            "/config/users/%3Cdefault%3E/clients/<default>",
            ("/config/users/%3Cdefault%3E", "/config/users/%3Cdefault%3E/clients"),
            "user <default>, client id <default>",
        ),
        (
            QuotaEntity(user=DEFAULT, client_id=".."),
            "/config/users/<default>/clients/%2E%2E",
            ("/config/users/<default>", "/config/users/<default>/clients"),
            "user <default>, client id ..",
        ),
    ],
)
def test_entities_have_nodes(entity: QuotaEntity, path: str, folders: tuple[str, ...], text: str) -> None:
    assert (entity.path, entity.folders, str(entity)) == (path, folders, text)


@given(NAMES)
def test_every_name_comes_back_from_its_part_and_stays_in_its_folder(name: str) -> None:
    part = quotas.encode_part(name)
    assert quotas.decode_part(part) == name
    assert "/" not in part
    assert "\0" not in part
    assert part not in {".", "..", DEFAULT.value}


@pytest.mark.parametrize("name", ["", "x" * 250, "\ud800"])
def test_some_names_cannot_have_a_quota(name: str) -> None:
    with pytest.raises(ValueError, match=r"characters|surrogates"):
        quotas.encode_part(name)


@pytest.mark.parametrize("part", ["a b", "%61", "%", "%zz", "%ff", "", "<other>", ".", "%2e"])
def test_parts_that_we_do_not_write_are_refused(part: str) -> None:
    with pytest.raises(MalformedNodeError):
        quotas.decode_part(part)


def test_the_default_is_nobodys_name() -> None:
    assert quotas.decode_part("<default>") is DEFAULT
    assert quotas.decode_part(quotas.encode_part("<default>")) == "<default>"


def test_a_quota_comes_back_as_written_with_what_others_wrote() -> None:
    node = QuotaNode(config={"connection_creation_rate": "7", "controller_mutation_rate": "2.5"})
    assert QuotaNode.decode(node.encode()) == node
    assert node.limit() == Limit(rate=2.5, burst=27.5)
    assert node.values == {"controller_mutation_rate": 2.5}


def test_a_burst_of_its_own_counts() -> None:
    node = QuotaNode(config={"controller_mutation_rate": "5", "controller_mutation_burst": "50"})
    assert node.limit() == Limit(rate=5.0, burst=50.0)


@pytest.mark.parametrize("data", [b"", b'{"version":1,"config":{}}', b'{"config":{"controller_mutation_burst":"9"}}'])
def test_a_node_without_a_rate_limits_nothing(data: bytes) -> None:
    assert QuotaNode.decode(data).limit() is None


@pytest.mark.parametrize("rate", ["", "x", "0", "-1", "nan", "inf", "1e13", "1e-7", "0x5"])
def test_a_rate_that_is_none_is_refused(rate: str) -> None:
    node = QuotaNode(config={"controller_mutation_rate": rate})
    with pytest.raises(MalformedNodeError, match="controller_mutation_rate"):
        node.limit()
    with pytest.raises(MalformedNodeError):
        node.values  # noqa: B018


@pytest.mark.parametrize(
    "data",
    [
        b"5",
        b"null",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b'{"config":' + b"9" * 5_000 + b"}",
        b'{"config":{"controller_mutation_rate":5}}',
        b'{"config":[]}',
        b'{"version":1}',
    ],
)
def test_unreadable_quotas_are_malformed_and_nothing_else(data: bytes) -> None:
    with pytest.raises(MalformedNodeError):
        QuotaNode.decode(data)


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_content_does_worse_than_being_malformed(data: bytes) -> None:
    for node in (QuotaNode, QuotaProcessNode):
        try:
            read = node.decode(data)
        except MalformedNodeError:
            continue
        # What was readable after all means something, and comes back as what it means.
        assert node.decode(read.encode()) == read


def test_changes_are_numbered() -> None:
    assert quotas.change_path(7) == "/config/changes/change_0000000007"
    assert quotas.change_number("change_0000000007") == 7
    assert [
        quotas.change_number(name) for name in ("change_7", "x", "change_00000000070", "change_\u0660000000007")
    ] == [None] * 4


def test_a_process_comes_back_as_written() -> None:
    for host in ("h", "10.0.0.1", "regnum-quota-0.regnum-quota.regnum.svc", "::1", "fe80::1%eth0"):
        node = QuotaProcessNode(id=2, incarnation="abc", internal=Address(host=host, port=9098))
        assert QuotaProcessNode.decode(node.encode()) == node


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"9" * 5_000,
        b'{"quota_id":1,"incarnation":"a","listeners":[]}',
        b'{"quota_id":true,"incarnation":"a","listeners":{"internal":"h:1"}}',
        b'{"quota_id":"1","incarnation":"a","listeners":{"internal":"h:1"}}',
        b'{"quota_id":1,"incarnation":"a","listeners":{"internal":"nowhere"}}',
        b'{"quota_id":1,"incarnation":"a","listeners":{"internal":"a b:1"}}',
        b'{"quota_id":1,"incarnation":"a","listeners":{"internal":"\\ud800:1"}}',
        b'{"quota_id":1,"incarnation":"a","listeners":{"internal":"\\u0000:1"}}',
    ],
)
def test_unreadable_processes_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedNodeError):
        QuotaProcessNode.decode(data)


def test_the_burst_follows_from_the_windows_unless_it_is_set() -> None:
    windows = Windows(num=10, size_s=2)
    assert QuotaNode(config={RATE_KEY: "2.5"}).limit(windows) == Limit(rate=2.5, burst=50.0)
    assert QuotaNode(config={RATE_KEY: "2.5", BURST_KEY: "7"}).limit(windows) == Limit(rate=2.5, burst=7.0)


def test_the_clusters_node_says_what_the_windows_are_and_kafkas_are_the_default() -> None:
    assert QuotaNode().windows == Windows(num=11, size_s=1)
    assert QuotaNode(config={"controller.quota.window.num": "100"}).windows == Windows(num=100, size_s=1)
    both = {"controller.quota.window.num": "10", "controller.quota.window.size.seconds": "2"}
    assert QuotaNode(config=both).windows.span_s == 20.0


@pytest.mark.parametrize("text", ["0", "-1", "1001", "1.5", "", "nan", "9" * 5_000])
def test_windows_that_are_none_are_refused_with_the_range(text: str) -> None:
    with pytest.raises(MalformedNodeError, match="from 1 to 1000"):
        _ = QuotaNode(config={"controller.quota.window.num": text}).windows


@given(st.frozensets(NAMES))
def test_who_is_exempt_is_written_and_read_back(users: frozenset[str]) -> None:
    assert QuotaTermsNode.decode(QuotaTermsNode(exempt_users=users).encode()).exempt_users == users


@pytest.mark.parametrize(
    "data", [b"?", b"[]", b"{}", b"7", b'{"exempt_users":"ann"}', b'{"exempt_users":[1]}', b"\xff"]
)
def test_a_list_of_exempt_users_that_nobody_can_read_is_said_to_be_none(data: bytes) -> None:
    with pytest.raises(MalformedNodeError):
        QuotaTermsNode.decode(data)
