"""Access rules through the SDK and `regnum acls`: what is sent, stdout, stderr, exit status."""

import json
from collections.abc import AsyncIterator

import pytest
from regnum_client import Admin
from regnum_client.admin.acls.values import (
    AclBinding,
    AclFilter,
    Entry,
    Operation,
    Permission,
    ResourcePattern,
    ResourceType,
)
from regnum_service.errors import RegnumError
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster

READ = AclBinding(
    pattern=ResourcePattern(type=ResourceType.TOPIC, name="orders"),
    entry=Entry(principal="User:a", host="*", operation=Operation.READ, permission=Permission.ALLOW),
)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        yield running


@pytest.fixture
def regnum(cluster: FakeCluster) -> CommandHere:
    return CommandHere(cluster.bootstrap)


async def test_rules_are_added_listed_asked_and_removed_by_the_sdk(cluster: FakeCluster) -> None:
    wrong = AclBinding(
        pattern=READ.pattern,
        entry=Entry(principal="a", host="*", operation=Operation.READ, permission=Permission.ALLOW),
    )
    async with Admin(cluster.bootstrap, timeout_s=5.0) as admin:
        outcomes = await admin.create_acls([READ, wrong])
        assert outcomes[READ] is None
        assert "write User:name" in str(outcomes[wrong])
        with pytest.raises(RegnumError, match="write User:name"):
            await admin.create_acl(wrong)
        assert (await admin.describe_acls()).bindings == (READ,)
        found = await admin.check_acl("User:a", Operation.DESCRIBE, ResourceType.TOPIC, "orders")
        assert (found.allowed, found.rule, found.enforced) == (True, READ, True)
        assert not (await admin.check_acl("User:b", Operation.DESCRIBE, ResourceType.TOPIC, "orders")).allowed
        assert await admin.delete_acls(AclFilter(principal="User:a"), validate_only=True) == {READ: None}
        assert (await admin.describe_acls()).bindings == (READ,)
        assert await admin.delete_acls(AclFilter(principal="User:a")) == {READ: None}
        assert (await admin.describe_acls()).bindings == ()


async def test_each_principal_and_operation_that_is_named_makes_a_rule(
    cluster: FakeCluster, regnum: CommandHere
) -> None:
    line = "acls add --allow User:a --allow User:b --operation read --operation WRITE --topic ord --prefixed"
    done = await regnum(*line.split(), "--host", "10.0.0.1", "-o", "json")
    assert (done.status, done.err) == (0, "4 rules in force\n")
    rows = json.loads(done.out)
    assert {(row["principal"], row["operation"]) for row in rows} == {
        (who, what) for who in ("User:a", "User:b") for what in ("READ", "WRITE")
    }
    assert rows[0] == {
        "permission": "ALLOW",
        "operation": "READ",
        "principal": "User:a",
        "host": "10.0.0.1",
        "resource_type": "TOPIC",
        "pattern": "PREFIXED",
        "name": "ord",
    }
    assert len(cluster.elections[1].acls) == 4


async def test_a_list_shows_every_page_and_only_what_fits(cluster: FakeCluster, regnum: CommandHere) -> None:
    for line in (
        "--allow User:a --operation READ --topic orders",
        "--allow User:a --operation READ --topic ord --prefixed",
        "--deny User:* --operation ALL --topic *",
        "--allow User:a --operation READ --group readers",
    ):
        assert (await regnum("acls", "add", *line.split())).status == 0
    everything = json.loads((await regnum("acls", "list", "-o", "json")).out)
    assert len(everything) == 4
    about = json.loads((await regnum("acls", "list", "--topic", "orders", "--match", "-o", "json")).out)
    assert {row["name"] for row in about} == {"orders", "ord", "*"}
    exact = json.loads((await regnum("acls", "list", "--topic", "orders", "-o", "json")).out)
    assert {row["name"] for row in exact} == {"orders"}
    denials = json.loads((await regnum("acls", "list", "--deny", "User:*", "-o", "json")).out)
    assert [row["permission"] for row in denials] == ["DENY"]
    none = await regnum("acls", "list", "--topic", "other")
    assert (none.status, none.err) == (0, "no rule fits\n")


async def test_a_removal_shows_what_fits_and_removes_it_only_when_told(
    cluster: FakeCluster, regnum: CommandHere
) -> None:
    await regnum(*["acls", "add", "--allow", "User:a", "--allow", "User:b", "--operation", "READ", "--topic", "orders"])
    looked = await regnum(*["acls", "remove", "--allow", "User:a", "-o", "json"])
    assert (looked.status, len(json.loads(looked.out))) == (0, 1)
    assert "nothing was changed; run it again with --yes" in looked.err
    assert len(cluster.elections[1].acls) == 2
    removed = await regnum(*["acls", "remove", "--allow", "User:a", "--yes"])
    assert (removed.status, removed.err) == (0, "1 rules are gone\n")
    assert [one.entry.principal for one in cluster.elections[1].acls] == ["User:b"]


async def test_a_check_ends_with_the_rule_that_decides_and_a_denial_with_status_seven(
    cluster: FakeCluster, regnum: CommandHere
) -> None:
    await regnum(*["acls", "add", "--allow", "User:a", "--operation", "READ", "--topic", "ord", "--prefixed"])
    allowed = await regnum(*["acls", "check", "User:a", "DESCRIBE", "--topic", "orders", "-o", "json"])
    assert allowed.status == 0
    assert json.loads(allowed.out) == {
        "allowed": True,
        "reason": "allowed by the rule: ALLOW READ to User:a from * on TOPIC PREFIXED 'ord'",
        "rule": "ALLOW READ to User:a from * on TOPIC PREFIXED 'ord'",
        "enforced": True,
    }
    denied = await regnum(*["acls", "check", "User:a", "WRITE", "--topic", "orders"])
    assert denied.status == 7
    assert "no rule allows it" in denied.out


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("add --allow User:a --operation READ", "about what?"),
        ("add --allow User:a --operation READ --topic a --group b", "Give one of"),
        ("add --operation READ --topic a", "--allow or --deny"),
        ("add --allow User:a --topic a", "--operation"),
        ("add --allow User:a --operation FLY --topic a", "no operation"),
        ("add --allow a --operation READ --topic a", "User:name"),
        ("add --allow User:a --operation READ --topic a --host 10.0.0.0/8", "one IP address"),
        ("remove", "which rules?"),
        ("list --topic a --match --prefixed", "give one of them"),
        ("check User:a FLY --topic a", "no operation"),
    ],
)
async def test_what_makes_no_sense_is_refused_before_anybody_is_asked(
    cluster: FakeCluster, regnum: CommandHere, line: str, says: str
) -> None:
    done = await regnum("acls", *line.split())
    assert done.status == 2
    assert says in done.err
    assert cluster.elections[1].acls == {}
