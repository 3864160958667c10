"""KIP-48's rules of delegation tokens, one by one, and at random against a naive model."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from regnum.types.v1 import errors_pb2
from regnum_model.delegation_tokens import (
    DAY_MS,
    FOLDER,
    OF_ONE_MAX,
    RENEWERS_MAX,
    TOKENS_MAX,
    Creation,
    DelegationToken,
    Lives,
    Secrets,
    created,
    described,
    expired,
    is_token_id,
    may_deal,
    no_room,
    path_of,
    renewed,
    token_id_for,
    token_id_of,
)
from regnum_model.nodes import MalformedNodeError
from regnum_model.principals import NOBODY, Principal
from regnum_model.rejection import Rejection

NOW = 1_700_000_000_000
ALICE, BOB, YARN, EVE = Principal("alice"), Principal("bob"), Principal("yarn"), Principal("eve")
LIVES = Lives()
ID = token_id_of(b"one")


def never(_: Principal) -> bool:
    return False


def token(**how: object) -> DelegationToken:
    told = {
        "id": ID,
        "owner": ALICE,
        "requester": BOB,
        "renewers": (YARN,),
        "issued_ms": NOW,
        "expiry_ms": NOW + DAY_MS,
        "max_ms": NOW + 7 * DAY_MS,
    }
    return DelegationToken(**{**told, **how})  # type: ignore[arg-type]


def code_of(found: DelegationToken | Rejection | None) -> str:
    return "NONE" if not isinstance(found, Rejection) else errors_pb2.ErrorCode.Name(found.code)[11:]


@pytest.mark.parametrize(
    ("who", "encrypted", "expected"),
    [
        (ALICE, True, "NONE"),
        (ALICE, False, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"),
        (replace(ALICE, token_authenticated=True), True, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"),
        (NOBODY, True, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"),
        (NOBODY, False, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"),
    ],
)
def test_nobody_deals_with_tokens_without_a_name_without_tls_or_with_a_token(
    who: Principal, encrypted: bool, expected: str
) -> None:
    assert code_of(may_deal(who=who, encrypted=encrypted)) == expected


@pytest.mark.parametrize(
    ("life_ms", "max_after", "expiry_after"),
    [
        (-1, 7 * DAY_MS, DAY_MS),
        (0, 7 * DAY_MS, DAY_MS),
        (1, 1, 1),
        (DAY_MS // 2, DAY_MS // 2, DAY_MS // 2),
        (2 * DAY_MS, 2 * DAY_MS, DAY_MS),
        (2**63 - 1, 7 * DAY_MS, DAY_MS),
        (-(2**63), 7 * DAY_MS, DAY_MS),
    ],
)
def test_a_token_lives_as_long_as_it_asks_for_within_what_the_cluster_allows(
    life_ms: int, max_after: int, expiry_after: int
) -> None:
    made = created(Creation(life_ms=life_ms), id=ID, who=ALICE, now_ms=NOW, lives=LIVES, may_create_for=never)
    assert isinstance(made, DelegationToken)
    assert (made.issued_ms, made.max_ms - NOW, made.expiry_ms - NOW) == (NOW, max_after, expiry_after)
    assert (made.owner, made.requester, made.renewers) == (ALICE, ALICE, ())


@pytest.mark.parametrize(
    ("wanted", "right", "expected"),
    [
        (Creation(owner=ALICE), False, "NONE"),
        (Creation(owner=BOB), True, "NONE"),
        (Creation(owner=BOB), False, "DELEGATION_TOKEN_AUTHORIZATION_FAILED"),
        # Rights before principals, as Kafka asks.
        (Creation(owner=BOB, renewers=(Principal("g", "Group"),)), False, "DELEGATION_TOKEN_AUTHORIZATION_FAILED"),
        (Creation(renewers=(Principal("g", "Group"),)), False, "INVALID_PRINCIPAL_TYPE"),
        (Creation(owner=Principal("g", "Group")), True, "INVALID_PRINCIPAL_TYPE"),
        (Creation(owner=NOBODY), True, "INVALID_PRINCIPAL_TYPE"),
        (Creation(renewers=(NOBODY,)), False, "INVALID_PRINCIPAL_TYPE"),
        (Creation(renewers=(Principal(""),)), False, "INVALID_PRINCIPAL_TYPE"),
        (Creation(renewers=(Principal("x" * 2_000),)), False, "INVALID_REQUEST"),
        (Creation(renewers=(YARN,) * (RENEWERS_MAX + 1)), False, "INVALID_REQUEST"),
        (Creation(renewers=(YARN, YARN, EVE)), False, "NONE"),
    ],
)
def test_who_may_have_a_token_for_whom(wanted: Creation, right: bool, expected: str) -> None:
    asked: list[Principal] = []

    def may(owner: Principal) -> bool:
        asked.append(owner)
        return right

    made = created(wanted, id=ID, who=ALICE, now_ms=NOW, lives=LIVES, may_create_for=may)
    assert code_of(made) == expected
    assert asked == ([] if wanted.owner in {None, ALICE} else [wanted.owner])
    if isinstance(made, DelegationToken):
        assert made.owner == (wanted.owner or ALICE)
        assert made.requester == ALICE
        assert made.renewers == tuple(dict.fromkeys(wanted.renewers))


MISMATCH, EXPIRED, NOT_FOUND = (
    "DELEGATION_TOKEN_OWNER_MISMATCH",
    "DELEGATION_TOKEN_EXPIRED",
    "DELEGATION_TOKEN_NOT_FOUND",
)


@pytest.mark.parametrize(
    ("who", "period_ms", "now_ms", "expected"),
    [
        (ALICE, -1, NOW, NOW + DAY_MS),
        (YARN, -1, NOW + 10, NOW + 10 + DAY_MS),
        (YARN, 5, NOW + 10, NOW + 15),
        (ALICE, 0, NOW + 10, NOW + 10),
        (ALICE, 2**63 - 1, NOW, NOW + 7 * DAY_MS),
        (ALICE, 7 * DAY_MS, NOW + 1, NOW + 7 * DAY_MS),
        (ALICE, -1, NOW + DAY_MS, NOW + 2 * DAY_MS),
        (ALICE, -1, NOW + DAY_MS + 1, EXPIRED),
        # Who asked for it for somebody else has no right to it (Kafka 2.3).
        (BOB, -1, NOW, MISMATCH),
        (EVE, -1, NOW, MISMATCH),
        (EVE, -1, NOW + DAY_MS + 1, MISMATCH),
        (NOBODY, -1, NOW, MISMATCH),
        (replace(YARN, token_authenticated=True), -1, NOW, NOW + DAY_MS),
    ],
)
def test_owner_and_renewers_renew_until_it_has_expired(
    who: Principal, period_ms: int, now_ms: int, expected: int | str
) -> None:
    found = renewed(token(), who=who, period_ms=period_ms, now_ms=now_ms, lives=LIVES)
    assert (found.expiry_ms if isinstance(found, DelegationToken) else code_of(found)) == expected
    if isinstance(found, DelegationToken):
        assert found == token(expiry_ms=expected)


@pytest.mark.parametrize(
    ("who", "period_ms", "now_ms", "expected"),
    [
        (ALICE, -1, NOW + 3, (NOW + 3, True)),
        (YARN, -(2**63), NOW + 3, (NOW + 3, True)),
        (ALICE, 0, NOW + 3, (NOW + 3, False)),
        (ALICE, 5, NOW + 3, (NOW + 8, False)),
        (ALICE, 2**63 - 1, NOW + 3, (NOW + 7 * DAY_MS, False)),
        (ALICE, 5, NOW + DAY_MS + 1, EXPIRED),
        # At once also where it has expired: what is left of it goes (DelegationTokenManager.expireToken).
        (ALICE, -1, NOW + DAY_MS + 1, (NOW + DAY_MS + 1, True)),
        (EVE, -1, NOW, MISMATCH),
        (BOB, -1, NOW, MISMATCH),
        (EVE, 5, NOW + DAY_MS + 1, MISMATCH),
    ],
)
def test_owner_and_renewers_end_it(
    who: Principal, period_ms: int, now_ms: int, expected: tuple[int, bool] | str
) -> None:
    found = expired(token(), who=who, period_ms=period_ms, now_ms=now_ms)
    assert ((found.expiry_ms, found.revoked) if isinstance(found, DelegationToken) else code_of(found)) == expected


def test_what_is_not_there_is_not_found_whoever_asks() -> None:
    assert code_of(renewed(None, who=EVE, period_ms=-1, now_ms=NOW, lives=LIVES)) == NOT_FOUND
    assert code_of(expired(None, who=EVE, period_ms=-1, now_ms=NOW)) == NOT_FOUND


def test_a_revoked_token_is_dead_at_once_and_is_never_renewed() -> None:
    ended = expired(token(), who=ALICE, period_ms=-1, now_ms=NOW)
    assert isinstance(ended, DelegationToken)
    assert ended.is_dead(NOW)
    assert code_of(renewed(ended, who=ALICE, period_ms=-1, now_ms=NOW, lives=LIVES)) == EXPIRED


@pytest.mark.parametrize(
    ("expiry", "maximum", "now", "dead"), [(5, 9, 5, False), (5, 9, 6, True), (9, 5, 6, True), (9, 9, 4, False)]
)
def test_a_token_is_dead_after_its_expiry_and_after_its_end(expiry: int, maximum: int, now: int, dead: bool) -> None:
    assert token(expiry_ms=expiry, max_ms=maximum).is_dead(now) is dead


@pytest.mark.parametrize(
    ("who", "owners", "right", "seen"),
    [
        (ALICE, None, False, True),
        (YARN, None, False, True),
        (BOB, None, False, False),
        (EVE, None, False, False),
        (EVE, None, True, True),
        (EVE, [ALICE], True, True),
        (EVE, [YARN], True, True),
        (EVE, [EVE], True, False),
        (ALICE, [EVE], True, False),
        (ALICE, [], True, False),
        (ALICE, [YARN], False, True),
    ],
)
def test_who_sees_a_token(who: Principal, owners: list[Principal] | None, right: bool, seen: bool) -> None:
    found = described([token()], who=who, owners=owners, may_describe=lambda _: right)
    assert found == ([token()] if seen else [])


def test_one_principal_and_the_cluster_have_a_most_of_tokens() -> None:
    assert no_room(total=TOKENS_MAX - 1, of_one=OF_ONE_MAX - 1) is None
    assert code_of(no_room(total=OF_ONE_MAX, of_one=OF_ONE_MAX)) == "INVALID_REQUEST"
    assert code_of(no_room(total=TOKENS_MAX, of_one=0)) == "INVALID_REQUEST"


def test_the_hmac_is_kip_48s() -> None:
    secret = b"s" * 32
    assert Secrets(secret).prove(ID) == hmac.new(secret, ID.encode(), hashlib.sha512).digest()


def test_during_a_rotation_both_secrets_prove_and_the_first_one_makes() -> None:
    old, new = b"o" * 32, b"n" * 40
    before, both, after = Secrets(old), Secrets(new, old), Secrets(new)
    assert both.prove(ID) == after.prove(ID) != before.prove(ID)
    assert [secrets.holds(ID, before.prove(ID)) for secrets in (before, both, after)] == [True, True, False]
    assert [secrets.holds(ID, after.prove(ID)) for secrets in (before, both, after)] == [False, True, True]


@pytest.mark.parametrize("shown", [b"", b"\0" * 64, b"x", b"\xff" * 64, b"\0" * 63])
def test_nothing_else_proves_a_token(shown: bytes) -> None:
    assert not Secrets(b"s" * 32, b"t" * 32).holds(ID, shown)
    right = Secrets(b"s" * 32).prove(ID)
    assert not Secrets(b"s" * 32).holds(token_id_of(b"other"), right)
    assert not Secrets(b"s" * 32).holds(ID, right[:-1])


def test_a_short_secret_is_refused_and_none_is_ever_shown() -> None:
    with pytest.raises(ValueError, match="at least 32 bytes"):
        Secrets(b"s" * 32, b"short")
    assert repr(Secrets(b"s" * 32)) == "Secrets(1)"
    assert "s" * 8 not in str(Secrets(b"s" * 32))


def test_a_repeat_of_a_creation_means_the_same_token_and_nobody_elses() -> None:
    assert token_id_for(ALICE, "m") == token_id_for(replace(ALICE, token_authenticated=True), "m")
    assert len({token_id_for(who, id) for who in (ALICE, BOB) for id in ("m", "n", "")}) == 6
    assert is_token_id(token_id_for(ALICE, "m"))


def test_a_node_says_what_the_token_is_and_no_secret() -> None:
    data = token().encode()
    assert json.loads(data) == {
        "version": 1,
        "owner": "User:alice",
        "requester": "User:bob",
        "renewers": ["User:yarn"],
        "issued": NOW,
        "expiry": NOW + DAY_MS,
        "max": NOW + 7 * DAY_MS,
    }
    proof = Secrets(b"s" * 32).prove(ID)
    assert base64.b64encode(proof) not in data
    assert proof.hex().encode() not in data
    assert DelegationToken.decode(ID, data) == token()
    assert DelegationToken.decode(ID, token(revoked=True).encode()) == token(revoked=True)


GOOD = json.loads(token().encode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        *(json.dumps({**GOOD, key: value}).encode() for key in GOOD for value in (None, "x", -1, [1], {}, 2**70)),
        json.dumps({**GOOD, "renewers": ["User:a"] * (RENEWERS_MAX + 1)}).encode(),
        json.dumps({**GOOD, "owner": "User:"}).encode(),
    ],
)
def test_a_node_that_somebody_broke_is_no_token(data: bytes) -> None:
    with pytest.raises(MalformedNodeError):
        DelegationToken.decode(ID, data)


@pytest.mark.parametrize("value", [1, "true", "", 0, None, [], True])
def test_whatever_somebody_wrote_of_a_revocation_the_token_is_dead(value: object) -> None:
    found = DelegationToken.decode(ID, json.dumps({**GOOD, "revoked": value}).encode())
    assert found.is_dead(NOW)


@pytest.mark.parametrize("id", ["", "..", "a/b", "x" * 21, "x" * 23, "é" * 22, "x" * 21 + "\n", "x" * 21 + "/"])
def test_nothing_but_a_token_id_becomes_a_path(id: str) -> None:
    with pytest.raises(ValueError, match="no token id"):
        path_of(id)
    with pytest.raises(MalformedNodeError):
        DelegationToken.decode(id, token().encode())
    assert path_of(ID) == f"{FOLDER}/{ID}"


PEOPLE = (ALICE, BOB, YARN, EVE)
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(("create", "renew", "expire", "describe")),
        st.sampled_from(PEOPLE),
        st.sampled_from(PEOPLE),
        st.lists(st.sampled_from(PEOPLE), max_size=2),
        st.sampled_from((-1, 0, 1, 40, 99, 1_000, 2**63 - 1)),
        st.integers(0, 7),
        st.integers(0, 60),
    ),
    max_size=60,
)


class Naive:
    """Kafka's manager as it reads: a dictionary of lists that are changed in place."""

    def __init__(self) -> None:
        self.tokens: list[list[object]] = []

    def create(self, who: Principal, owner: Principal, renewers: list[Principal], life: int, now: int) -> str:
        if owner is not who and who is not BOB:
            return "DELEGATION_TOKEN_AUTHORIZATION_FAILED"
        end = now + (200 if life <= 0 or life > 200 else life)
        self.tokens.append([owner, renewers, end, min(end, now + 50)])
        return "NONE"

    def change(self, kind: str, number: int, who: Principal, period: int, now: int) -> str | int:
        if number >= len(self.tokens):
            return NOT_FOUND
        it = self.tokens[number]
        if who is not it[0] and who not in it[1]:  # type: ignore[operator]
            return MISMATCH
        if kind == "expire" and period < 0:
            it[3] = -1
            return now
        if it[2] < now or it[3] < now:  # type: ignore[operator]
            return EXPIRED
        it[3] = min(it[2], now + (50 if kind == "renew" and period < 0 else period))  # type: ignore[call-overload]
        return it[3]  # type: ignore[return-value]

    def seen(self, who: Principal, owner: Principal) -> list[int]:
        def of(somebody: Principal, it: list[object]) -> bool:
            return somebody is it[0] or somebody in it[1]  # type: ignore[operator]

        return [n for n, it in enumerate(self.tokens) if of(owner, it) and (of(who, it) or who is EVE)]


@settings(max_examples=400, deadline=None)
@given(operations=OPERATIONS)
def test_any_sequence_of_calls_leaves_what_kafkas_manager_would_have_left(operations: list[tuple]) -> None:  # type: ignore[type-arg]
    naive, tokens, now = Naive(), dict[int, DelegationToken](), 1_000
    lives = Lives(max_ms=200, renew_ms=50)
    change: dict[str, Callable[..., DelegationToken | Rejection]] = {
        "renew": lambda *what, **how: renewed(*what, lives=lives, **how),
        "expire": expired,
    }
    for kind, who, other, renewers, period, number, passed in operations:
        now += passed
        if kind == "create":
            made = created(
                Creation(owner=other, renewers=renewers, life_ms=period),
                id=ID,
                who=who,
                now_ms=now,
                lives=lives,
                may_create_for=lambda _, who=who: who is BOB,
            )
            assert code_of(made) == naive.create(who, other, renewers, period, now)
            if isinstance(made, DelegationToken):
                tokens[len(tokens)] = replace(made, id=token_id_of(str(len(tokens)).encode()))
        elif kind == "describe":
            found = described(tokens.values(), who=who, owners=[other], may_describe=lambda _, who=who: who is EVE)
            numbers = {one.id: number for number, one in tokens.items()}
            assert [numbers[one.id] for one in found] == naive.seen(who, other)
        else:
            after = change[kind](tokens.get(number), who=who, period_ms=period, now_ms=now)
            expected = naive.change(kind, number, who, period, now)
            assert (after.expiry_ms if isinstance(after, DelegationToken) else code_of(after)) == expected
            if isinstance(after, DelegationToken):
                tokens[number] = DelegationToken.decode(after.id, after.encode())
        for n, one in tokens.items():
            assert one.is_dead(now) is (naive.tokens[n][2] < now or naive.tokens[n][3] < now)
