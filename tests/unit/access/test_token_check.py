"""Who shows a delegation token is its owner; whoever tries learns only that it was wrong."""

import base64
import os

import pytest
from regnum.types.v1 import errors_pb2
from regnum_model.delegation_tokens import DelegationToken, Secrets, token_id_of
from regnum_model.principals import Principal
from regnum_service.access.tokens.check import SCHEME, TokenAuthentication, TokensOff, credential_of, shown_in
from regnum_service.access.tokens.secrets import read_secrets
from regnum_service.access.tokens.table import TokenTable
from regnum_service.errors import RegnumError, StartRefusedError, reason_of
from regnum_service.tls.private_files import is_exposed

OLD, NEW = Secrets(b"o" * 32), Secrets(b"n" * 32, b"o" * 32)
ID, OTHER = token_id_of(b"one"), token_id_of(b"two")
NOW = 1_000
TOKEN = DelegationToken(
    id=ID,
    owner=Principal("alice"),
    requester=Principal("bob"),
    renewers=(Principal("yarn"),),
    issued_ms=0,
    expiry_ms=2_000,
    max_ms=9_000,
)


class World:
    """A process that knows one token."""

    def __init__(self, secrets: Secrets = NEW, *, is_known: bool = True) -> None:
        self.now_ms = NOW
        self.table = TokenTable()
        self.table.put(TOKEN)
        self.check = TokenAuthentication(
            self.table, secrets, is_known=lambda: is_known, wall_ms=lambda: self.now_ms
        ).check

    def refusal(self, entry: str | bytes, *more: tuple[str, str]) -> RegnumError:
        with pytest.raises(RegnumError) as refused:
            self.check([("user-agent", "x"), ("authorization", entry), *more])
        return refused.value


GOOD = SCHEME + credential_of(ID, OLD.prove(ID))


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER "])
def test_whoever_proves_a_token_is_its_owner_and_is_marked(scheme: str) -> None:
    entry = scheme + credential_of(ID, NEW.prove(ID))
    assert World().check([("authorization", entry)]) == Principal("alice", token_authenticated=True)


def test_a_token_made_before_a_rotation_counts_until_its_secret_is_taken_away() -> None:
    assert World(NEW).check([("authorization", GOOD)]) is not None
    gone = World(Secrets(b"n" * 32)).refusal(GOOD)
    assert gone.code == errors_pb2.ERROR_CODE_SASL_AUTHENTICATION_FAILED


def test_a_call_without_a_token_is_somebody_elses_to_tell_apart() -> None:
    assert World().check([("user-agent", "x")]) is None
    assert TokensOff().check([("user-agent", "x")]) is None


def flipped(entry: str, place: int) -> str:
    return entry[:place] + ("A" if entry[place] != "A" else "B") + entry[place + 1 :]


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "Bearer",
        "Bearer ",
        f"Basic {base64.b64encode(b'alice:secret').decode()}",
        GOOD.removeprefix(SCHEME),
        GOOD + "A",
        GOOD[:-1],
        GOOD.replace(".", ":"),
        flipped(GOOD, len(SCHEME)),
        flipped(GOOD, -5),
        SCHEME + credential_of(OTHER, NEW.prove(OTHER)),
        SCHEME + credential_of(ID, NEW.prove(OTHER)),
        f"{SCHEME}{ID}.{'=' * 86}",
        f"{SCHEME}{ID}.{'é' * 86}",
        f"{SCHEME}../{'x' * 19}.{'A' * 86}",
        SCHEME + "x" * 16_000,
        b"\x00\xff",
    ],
)
def test_unknown_wrong_and_garbled_tokens_get_the_same_answer_which_repeats_nothing_of_them(entry: str | bytes) -> None:
    refused = World().refusal(entry)
    unknown = World().refusal(SCHEME + credential_of(OTHER, NEW.prove(OTHER)))
    assert (refused.code, refused.message, dict(refused.metadata)) == (unknown.code, unknown.message, {})
    assert refused.code == errors_pb2.ERROR_CODE_SASL_AUTHENTICATION_FAILED


def test_two_tokens_in_one_call_are_refused() -> None:
    refused = World().refusal(GOOD, ("authorization", GOOD))
    assert refused.code == errors_pb2.ERROR_CODE_SASL_AUTHENTICATION_FAILED


def test_an_expired_token_is_told_apart_only_to_who_can_prove_it() -> None:
    world = World()
    world.now_ms = 2_001
    assert world.refusal(GOOD).code == errors_pb2.ERROR_CODE_DELEGATION_TOKEN_EXPIRED
    assert world.refusal(flipped(GOOD, -5)).code == errors_pb2.ERROR_CODE_SASL_AUTHENTICATION_FAILED


def test_a_process_that_has_not_read_the_tokens_yet_lets_nobody_in_and_says_that_it_helps_to_wait() -> None:
    refused = World(is_known=False).refusal(GOOD)
    assert refused.traits.retriable
    assert reason_of(refused.code) == "COORDINATOR_LOAD_IN_PROGRESS"


def test_where_tokens_are_off_who_shows_one_is_not_taken_for_nobody() -> None:
    with pytest.raises(RegnumError) as refused:
        TokensOff().check([("authorization", GOOD)])
    assert refused.value.code == errors_pb2.ERROR_CODE_DELEGATION_TOKEN_AUTH_DISABLED


def test_a_credential_is_read_back() -> None:
    assert shown_in([("authorization", GOOD)]) == (ID, OLD.prove(ID))
    assert len(GOOD) == len("Bearer ") + 22 + 1 + 86


def test_the_table_counts_tokens_of_owners_and_of_those_who_asked_for_them() -> None:
    table = TokenTable()
    table.put(TOKEN)
    table.put(TOKEN)
    assert (len(table), table.count_of(Principal("alice")), table.count_of(Principal("bob"))) == (1, 1, 1)
    assert table.count_of(Principal("yarn")) == 0
    table.drop(ID)
    table.drop(ID)
    assert (len(table), table.count_of(Principal("alice")), table.count_of(Principal("bob"))) == (0, 0, 0)


def test_secrets_come_from_files_that_their_owner_alone_reads(tmp_path) -> None:
    first, other = tmp_path / "first", tmp_path / "other"
    first.write_bytes(b"n" * 32 + b"\n")
    other.write_bytes(b"o" * 32)
    for file in (first, other):
        file.chmod(0o600)
    secrets = read_secrets(first, other)
    assert secrets is not None
    assert secrets.prove(ID) == NEW.prove(ID)
    assert secrets.holds(ID, OLD.prove(ID))
    assert read_secrets(None, None) is None


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        (b"short-secret-word", 0o600, "no secret of 32 to 4096 bytes"),
        (b"secret-word" * 1_000, 0o600, "no secret of 32 to 4096 bytes"),
        (b"secret-word" * 10, 0o644, "others than its owner"),
        (b"secret-word" * 10, 0o660, "others than its owner"),
        (b"secret-word" * 10, 0o602, "others than its owner"),
        (None, 0o600, "cannot be read"),
    ],
)
def test_a_secret_that_others_read_or_that_can_be_guessed_refuses_the_start_without_saying_it(
    tmp_path, content: bytes | None, mode: int, why: str
) -> None:
    file = tmp_path / "file"
    if content is not None:
        file.write_bytes(content)
        file.chmod(mode)
    with pytest.raises(StartRefusedError, match=why) as refused:
        read_secrets(file, None)
    assert "secret-word" not in str(refused.value)


@pytest.mark.parametrize(
    ("mode", "group", "exposed"),
    [
        (0o600, 1, False),
        (0o440, 7, False),  # a Secret that Kubernetes mounts: of root, for the group of the process
        (0o440, 1, True),
        (0o640, 7, False),
        (0o660, 7, True),
        (0o444, 7, True),
        (0o602, 7, True),
    ],
)
def test_the_group_of_the_process_may_read_a_secret_and_no_other(mode: int, group: int, exposed: bool) -> None:
    file = os.stat_result((mode, 1, 1, 1, 0, group, 1, 0, 0, 0))
    assert is_exposed(file, group=7) is exposed


def test_the_other_secret_does_not_stand_alone(tmp_path) -> None:
    with pytest.raises(StartRefusedError, match="stands alone"):
        read_secrets(None, tmp_path)
