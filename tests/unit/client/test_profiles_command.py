"""`regnum profile`: clusters by name, and which one a command goes to."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum_client.commands.invocation import says_cluster
from regnum_local.named_profiles import NamedProfile, NamedProfiles, profiles_path, put_into, read_profiles
from regnum_testing.command_here import CommandHere, Ran
from regnum_testing.fake_cluster import FakeCluster

SET_BY_PROFILES = ("REGNUM_BOOTSTRAP", "REGNUM_TLS_CA", "REGNUM_TLS_CERTIFICATE", "REGNUM_TLS_KEY", "REGNUM_TOKEN_FILE")


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.create("orders")
        yield running


class Command:
    """The command with an environment of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._monkeypatch = monkeypatch
        monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
        monkeypatch.setenv("REGNUM_PROFILE", "")

    async def __call__(self, *arguments: str, **environment: str) -> Ran:
        for variable in SET_BY_PROFILES:
            # Also what an earlier command has put there, and what this one puts there is gone with the test.
            self._monkeypatch.setenv(variable, environment.get(variable, ""))
        return await CommandHere("").alone(*arguments)


@pytest.fixture
def regnum(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    return Command(monkeypatch, tmp_path)


async def test_commands_go_to_the_profile_in_use(regnum: Command, cluster: FakeCluster) -> None:
    created = await regnum("profile", "create", "here", "--bootstrap", cluster.bootstrap, "-o", "json")
    (row,) = json.loads(created.out)
    assert (row["name"], row["current"], row["bootstrap"], row["tls"]) == ("here", False, cluster.bootstrap, False)
    assert (await regnum("topics", "list")).status == 3, "no cluster is known: it is not in use yet"
    assert "orders" in (await regnum("--profile", "here", "topics", "list")).out
    assert (await regnum("profile", "use", "here")).status == 0
    assert "orders" in (await regnum("topics", "list")).out
    listed = await regnum("profiles", "list", "-o", "json")
    assert [(one["name"], one["current"]) for one in json.loads(listed.out)] == [("here", True), ("local", False)]
    assert (await regnum("profile", "use", "local")).status == 0
    assert (await regnum("topics", "list")).status == 3


async def test_what_is_said_wins_over_the_profile_in_use(regnum: Command, cluster: FakeCluster) -> None:
    place = ("--bootstrap", "127.0.0.1:1", "--tls-ca", "/nonexistent.pem", "--use")
    assert (await regnum("profile", "create", "away", *place)).status == 0
    assert "orders" in (await regnum("topics", "list", "--bootstrap", cluster.bootstrap)).out
    assert "orders" in (await regnum("topics", "list", REGNUM_BOOTSTRAP=cluster.bootstrap)).out
    assert "/nonexistent.pem" in (await regnum("topics", "list", "--timeout", "0.2")).err
    said = await regnum("profile", "use", "away", REGNUM_BOOTSTRAP=cluster.bootstrap)
    assert "REGNUM_BOOTSTRAP or REGNUM_PROFILE is set" in said.err


async def test_names_that_are_not_there_or_are_there_already(regnum: Command, tmp_path: Path) -> None:
    assert (await regnum("profile", "create", "prod", "--bootstrap", "h:1")).status == 0
    again = await regnum("profile", "create", "prod", "--bootstrap", "h:2")
    assert (again.status, "--replace" in again.err) == (4, True)
    assert (await regnum("profile", "create", "prod", "--bootstrap", "h:2", "--replace", "--use")).status == 0
    for wrong in (("a b", "h:1"), ("local", "h:1"), ("other", "nonsense")):
        assert (await regnum("profile", "create", wrong[0], "--bootstrap", wrong[1])).status == 2
    missing = await regnum("--profile", "prd", "topics", "list")
    assert (missing.status, "did you mean 'prod'?" in missing.err) == (3, True)
    assert (await regnum("profile", "delete", "prod")).status == 0
    assert read_profiles({"XDG_CONFIG_HOME": str(tmp_path)}) == NamedProfiles()
    profiles_path({"XDG_CONFIG_HOME": str(tmp_path)}).write_text("{}")
    broken = await regnum("profile", "list", "-o", "json")
    assert (broken.status, broken.error["code"]) == (1, "PROFILE_UNREADABLE")


def test_a_profile_puts_what_it_says_where_the_sdk_looks_and_options_win() -> None:
    environment = {"REGNUM_TLS_CA": "given.pem", "REGNUM_BOOTSTRAP": "other:1"}
    put_into(environment, NamedProfile(bootstrap="h:1", tls_ca="ca.pem", token_file="token"))  # noqa: S106 - a path
    assert environment == {"REGNUM_BOOTSTRAP": "h:1", "REGNUM_TLS_CA": "given.pem", "REGNUM_TOKEN_FILE": "token"}


def test_where_a_command_line_says_which_cluster_is_meant() -> None:
    assert not says_cluster(["topics", "list"], {})
    assert not says_cluster([], {"REGNUM_BOOTSTRAP": ""})
    assert says_cluster(["topics", "list", "-b", "h:1"], {})
    assert says_cluster(["up"], {})
    assert says_cluster(["topics", "list"], {"REGNUM_PROFILE": "p.json"})
