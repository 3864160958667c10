"""`regnum tokens`, and the SDK's part of it: what is a secret is shown once, or kept in a file of its owner's."""

import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum.types.v1 import errors_pb2
from regnum_client import Admin
from regnum_client.cluster.security.channels import TOKEN, TlsFiles, with_token
from regnum_service.errors import RegnumError
from regnum_service.tls.files import TlsFilesError, WatchedFiles
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.fake_tokens import DAY_MS, NOW_MS

CREDENTIAL = f"{'i' * 22}.{'h' * 86}"


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        yield running


@pytest.fixture
def regnum(cluster: FakeCluster) -> CommandHere:
    return CommandHere(cluster.bootstrap)


async def test_a_credential_goes_to_a_file_of_its_owners_and_nowhere_else(
    cluster: FakeCluster, regnum: CommandHere, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    create = ("tokens", "create", "--file", str(file), "--renewer", "User:yarn", "--max-life", "3600", "-o", "json")
    status, out, err = await regnum(*create)
    assert (status, err) == (0, "")
    made = json.loads(out)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text() == f"{made['token_id']}.{'h' * 86}\n"
    assert "h" * 86 not in out
    assert (made["owner"], made["renewers"], made["file"]) == ("User:alice", ["User:yarn"], str(file))
    assert cluster.tokens.requests[0].max_lifetime_ms == 3_600_000
    assert WatchedFiles(TlsFiles(token=file)).pem.token is not None, "the SDK takes it as it is"


async def test_without_a_file_it_is_shown_once_with_a_warning(cluster: FakeCluster, regnum: CommandHere) -> None:
    status, out, err = await regnum("tokens", "create", "-o", "json")
    assert status == 0
    assert json.loads(out)["credential"].endswith("h" * 86)
    assert "secret" in err
    status, out, _ = await regnum("tokens", "list", "-o", "json")
    assert status == 0
    assert [one["owner"] for one in json.loads(out)] == ["User:alice"]
    assert "h" * 86 not in out


async def test_a_file_that_is_there_is_not_overwritten_and_no_token_is_made(
    cluster: FakeCluster, regnum: CommandHere, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("mine")
    status, _, err = await regnum("tokens", "create", "--file", str(file))
    assert status == 1
    assert "File exists" in err
    assert file.read_text() == "mine"
    assert cluster.tokens.requests == []


async def test_a_token_that_could_not_be_made_leaves_no_file(
    cluster: FakeCluster, regnum: CommandHere, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    cluster.elections[1].silent_answers = 1_000_000
    status, _, _ = await regnum("tokens", "create", "--file", str(file), "--timeout", "0.3")
    assert status == 5
    assert not file.exists()


async def test_tokens_are_renewed_and_ended(cluster: FakeCluster, regnum: CommandHere) -> None:
    async with Admin(cluster.bootstrap) as admin:
        made = await admin.create_delegation_token(owner="User:bob", renewers=["User:yarn"])
        assert "h" * 86 not in repr(made)
        assert (made.token.owner, made.token.max_ms) == ("User:bob", NOW_MS + 7 * DAY_MS)
        assert await admin.renew_delegation_token(made.token.token_id, period_s=60.0) == NOW_MS + 60_000
        assert await admin.expire_delegation_token(made.token.token_id, period_s=5.0) == NOW_MS + 5_000
        assert await admin.describe_delegation_tokens(["User:carol"]) == ()
    id = made.token.token_id
    status, out, _ = await regnum("tokens", "renew", id, "--for", "30", "-o", "json")
    assert (status, json.loads(out)) == (0, {"token_id": id, "expires": "2023-11-14T22:13:50Z"})
    status, out, _ = await regnum("tokens", "expire", id, "-o", "json")
    assert (status, json.loads(out)["expires"]) == (0, "2023-11-14T22:13:20Z")
    status, _, err = await regnum("tokens", "expire", id, "-o", "json")
    assert (status, json.loads(err)["error"]["code"]) == (3, "DELEGATION_TOKEN_NOT_FOUND")


async def test_a_creation_whose_answer_is_lost_is_repeated_and_makes_one_token(cluster: FakeCluster) -> None:
    cluster.elections[1].silent_answers = 1
    async with Admin(cluster.bootstrap) as admin:
        made = await admin.create_delegation_token()
        assert [one.token_id for one in await admin.describe_delegation_tokens()] == [made.token.token_id]
    assert cluster.calls["CreateDelegationToken"] == 2


async def test_a_repeat_that_came_too_late_to_be_shown_the_credential_says_which_token_to_end(
    cluster: FakeCluster, regnum: CommandHere
) -> None:
    cluster.tokens.shows_credentials = False
    status, out, err = await regnum("tokens", "create", "-o", "json")
    assert status != 0
    assert not out
    assert "is shown no more; end it, and ask for another one" in json.loads(err)["error"]["message"]


async def test_all_pages_are_read(cluster: FakeCluster) -> None:
    cluster.tokens.page = 2
    async with Admin(cluster.bootstrap) as admin:
        made = {(await admin.create_delegation_token()).token.token_id for _ in range(5)}
        assert [one.token_id for one in await admin.describe_delegation_tokens()] == sorted(made)


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        (CREDENTIAL, 0o644, "others than its owner"),
        ("some-other-secret", 0o600, "holds no credential"),
        (f"{CREDENTIAL}x", 0o600, "holds no credential"),
        (None, 0o600, "cannot read"),
    ],
)
def test_a_token_file_that_is_no_use_is_refused_without_saying_what_is_in_it(
    tmp_path: Path, content: str | None, mode: int, why: str
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
        file.chmod(mode)
    with pytest.raises(TlsFilesError, match=why) as refused:
        WatchedFiles(TlsFiles(token=file))
    assert content is None or content not in str(refused.value)


def test_a_token_in_memory_is_shown_and_in_no_representation(tmp_path: Path) -> None:
    watched = WatchedFiles(TlsFiles(credential=CREDENTIAL))
    assert watched.pem.token == CREDENTIAL.encode()
    assert "h" * 80 not in f"{watched.pem!r}{vars(watched)!r}"
    with pytest.raises(TlsFilesError, match="no credential") as refused:
        WatchedFiles(TlsFiles(credential=f"{CREDENTIAL}\n"))
    assert "h" * 80 not in str(refused.value)
    with pytest.raises(TlsFilesError, match="give one of them"):
        WatchedFiles(TlsFiles(credential=CREDENTIAL, token=tmp_path / "token"))


def test_the_environment_names_a_token_and_over_plaintext_it_is_not_shown(tmp_path: Path) -> None:
    environment = {TOKEN: str(tmp_path / "token")}
    assert with_token(TlsFiles(), environment) == TlsFiles(token=tmp_path / "token")
    own = TlsFiles(token=tmp_path / "own")
    assert with_token(own, environment) is own
    in_memory = TlsFiles(credential=CREDENTIAL)
    assert with_token(in_memory, environment) is in_memory, "another token would be another caller"
    assert with_token(None, {}) is None
    with pytest.raises(RegnumError) as refused:
        with_token(None, environment)
    assert refused.value.code == errors_pb2.ERROR_CODE_INVALID_CONFIG
