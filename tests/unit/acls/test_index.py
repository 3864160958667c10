"""Decisions: equal to those of a naive evaluator, with the rule that made them, at a cost that does not grow."""

import random
from collections.abc import Iterator

import pytest
from regnum_model.access import CLUSTER_NAME, Operation, ResourceType
from regnum_model.acls.bindings import (
    OPERATIONS_OF,
    AclBinding,
    Entry,
    InvalidAclError,
    PatternType,
    Permission,
    ResourcePattern,
    canonical_host,
    check_binding,
)
from regnum_model.acls.filters import AclFilter, PatternFilter
from regnum_model.acls.index import AclIndex, Why
from regnum_testing import naive_acls

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
NAMES = ("a", "ab", "abc", "b", "ba", "*", "a.", "a.b")
PRINCIPALS = ("User:x", "User:y", "User:*")
HOSTS = ("10.0.0.1", "10.0.0.2", "*")


def rule(
    operation: Operation,
    name: str = "orders",
    *,
    type: ResourceType = TOPIC,
    pattern: PatternType = PatternType.LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    permission: Permission = Permission.ALLOW,
) -> AclBinding:
    return AclBinding(
        pattern=ResourcePattern(type=type, name=name, pattern=pattern),
        entry=Entry(principal=principal, host=host, operation=operation, permission=permission),
    )


def index_of(*rules: AclBinding, supers: tuple[str, ...] = (), default: bool = False) -> AclIndex:
    index = AclIndex(super_users=supers, everyone_if_no_acl=default)
    for pattern in {one.pattern for one in rules}:
        index.put(pattern, [one.entry for one in rules if one.pattern == pattern])
    return index


def may(index: AclIndex, operation: Operation, name: str = "orders", who: str = "User:alice") -> bool:
    return index.decide(who, "10.0.0.1", operation, TOPIC, name).allowed


def any_rule(chance: random.Random) -> AclBinding:
    return rule(
        chance.choice(tuple(Operation)),
        chance.choice(NAMES),
        type=chance.choice((TOPIC, GROUP)),
        pattern=chance.choice(tuple(PatternType)),
        principal=chance.choice(PRINCIPALS),
        host=chance.choice(HOSTS),
        permission=Permission.DENY if chance.random() < 0.2 else Permission.ALLOW,
    )


def cases(count: int, seed: int) -> Iterator[tuple[str, bool, bool]]:
    """Random rules, put in, changed and taken out in any order, and questions to them: what was asked, both answers."""
    chance = random.Random(seed)
    asked = 0
    while asked < count:
        supers, default = frozenset(chance.choices(("User:x", "User:z"), k=chance.randint(0, 1))), chance.random() < 0.3
        index = AclIndex(super_users=supers, everyone_if_no_acl=default)
        there: dict[ResourcePattern, set[Entry]] = {}
        for _ in range(chance.randint(0, 25)):
            one = any_rule(chance)
            entries = there.setdefault(one.pattern, set())
            entries.symmetric_difference_update({one.entry})
            index.put(one.pattern, entries)
        rules = [AclBinding(pattern=pattern, entry=entry) for pattern, entries in there.items() for entry in entries]
        assert index.count == len(rules)
        for _ in range(20):
            who = (
                chance.choice(("User:x", "User:y", "User:z")),
                chance.choice(("10.0.0.1", "10.0.0.9")),
                chance.choice([one for one in Operation if one is not Operation.ALL]),
                chance.choice((TOPIC, GROUP)),
                chance.choice((*NAMES, "zzz")),
            )
            decision = index.decide(*who)
            # A rule that is said to have decided is one of those that are there.
            assert decision.binding is None or decision.binding in rules
            yield str((rules, supers, default, who)), decision.allowed, naive_acls.allowed(rules, supers, default, who)
            asked += 1


@pytest.mark.parametrize("seed", range(5))
def test_the_engine_decides_as_a_naive_evaluator_does(seed: int) -> None:
    answers = [0, 0]
    for asked, found, expected in cases(1_000, seed):
        assert found is expected, asked
        answers[expected] += 1
    # Cases of one kind only would show nothing.
    assert min(answers) > 100


@pytest.mark.full
def test_the_engine_decides_a_hundred_thousand_random_cases_as_a_naive_evaluator_does() -> None:
    count = 0
    for asked, found, expected in cases(100_000, 20_261_123):
        assert found is expected, asked
        count += 1
    assert count >= 100_000


def test_any_denial_wins_over_every_grant_however_narrow() -> None:
    denial = rule(Operation.READ, "ord", pattern=PatternType.PREFIXED, principal="User:*", permission=Permission.DENY)
    index = index_of(rule(Operation.ALL), rule(Operation.READ, host="10.0.0.1"), denial)
    decision = index.decide("User:alice", "10.0.0.1", Operation.READ, TOPIC, "orders")
    assert (decision.allowed, decision.binding) == (False, denial)
    assert may(index, Operation.WRITE)
    # A denial of READ does not deny what READ implies.
    assert may(index, Operation.DESCRIBE)


@pytest.mark.parametrize("operation", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_being_allowed_something_is_being_allowed_to_describe(operation: Operation) -> None:
    index = index_of(rule(operation))
    assert may(index, Operation.DESCRIBE)
    assert not may(index, Operation.DESCRIBE_CONFIGS)
    assert index.decide("User:alice", "h", Operation.DESCRIBE, TOPIC, "orders").binding == rule(operation)


def test_altering_configs_implies_describing_them_and_nothing_implies_altering() -> None:
    index = index_of(rule(Operation.ALTER_CONFIGS))
    assert may(index, Operation.DESCRIBE_CONFIGS)
    assert not may(index, Operation.DESCRIBE)
    assert not may(index_of(rule(Operation.DESCRIBE)), Operation.READ)


def test_a_pattern_that_cannot_be_read_denies_all_that_it_is_about_and_super_users_pass() -> None:
    index = index_of(rule(Operation.ALL, "*"), supers=("User:root",))
    index.put(ResourcePattern(type=TOPIC, name="ord", pattern=PatternType.PREFIXED), None)
    refused = index.decide("User:alice", "h", Operation.READ, TOPIC, "orders")
    assert (refused.allowed, refused.why) == (False, Why.UNREADABLE)
    assert "TOPIC PREFIXED 'ord'" in str(refused)
    assert may(index, Operation.READ, "others")
    assert may(index, Operation.READ, "orders", who="User:root")
    assert not index.all_allowed("User:alice", "h", Operation.READ, TOPIC)
    index.put(ResourcePattern(type=TOPIC, name="ord", pattern=PatternType.PREFIXED), ())
    assert may(index, Operation.READ)


def test_without_a_rule_about_the_resource_the_default_decides_and_a_rule_for_somebody_else_is_one() -> None:
    index = index_of(rule(Operation.READ, principal="User:bob"), default=True)
    assert may(index, Operation.READ, "free")
    assert not may(index, Operation.READ, "orders")
    assert not may(index_of(rule(Operation.READ, principal="User:bob")), Operation.READ, "free")


def test_a_host_counts_letter_by_letter_and_an_address_in_ipv6_clothes_is_itself() -> None:
    index = index_of(rule(Operation.READ, host="10.0.0.1"))
    assert index.decide("User:alice", "10.0.0.1", Operation.READ, TOPIC, "orders").allowed
    assert not index.decide("User:alice", "10.0.0.10", Operation.READ, TOPIC, "orders").allowed
    assert canonical_host("::ffff:10.0.0.1") == "10.0.0.1"
    assert canonical_host("2001:DB8::0:1") == "2001:db8::1"
    assert canonical_host("") == ""


def test_any_topic_that_may_be_written_is_enough_for_a_producer_id_unless_denials_cover_it() -> None:
    def any_write(*rules: AclBinding, default: bool = False) -> bool:
        return index_of(*rules, default=default).any_allowed("User:alice", "h", Operation.WRITE, TOPIC)

    deny_all = rule(Operation.WRITE, "*", permission=Permission.DENY)
    assert not any_write()
    assert any_write(rule(Operation.WRITE))
    assert not any_write(rule(Operation.WRITE, principal="User:bob"))
    assert not any_write(rule(Operation.WRITE), deny_all)
    assert not any_write(rule(Operation.WRITE), rule(Operation.WRITE, permission=Permission.DENY))
    prefix_denied = rule(Operation.ALL, "ord", pattern=PatternType.PREFIXED, permission=Permission.DENY)
    assert not any_write(rule(Operation.WRITE), prefix_denied)
    assert any_write(rule(Operation.WRITE, "*"), prefix_denied)
    assert any_write(default=True)
    assert not any_write(deny_all, default=True)


def test_all_topics_may_be_described_only_where_a_rule_says_so_and_none_denies_any() -> None:
    def every(*rules: AclBinding) -> bool:
        return index_of(*rules).all_allowed("User:alice", "h", Operation.DESCRIBE, TOPIC)

    everything = rule(Operation.READ, "*")
    assert every(everything)
    assert not every(rule(Operation.READ, "a", pattern=PatternType.PREFIXED))
    assert not every(everything, rule(Operation.DESCRIBE, "secret", permission=Permission.DENY))
    assert every(everything, rule(Operation.DESCRIBE, "secret", principal="User:bob", permission=Permission.DENY))


def test_a_decision_among_a_hundred_thousand_rules_looks_at_no_more_patterns_than_among_ten() -> None:
    index = AclIndex()
    for number in range(50_000):
        index.put(
            ResourcePattern(type=TOPIC, name=f"t{number}"),
            [rule(Operation.READ, principal=f"User:{one}").entry for one in (number, "x")],
        )
    assert index.count == 100_000
    looked_at = [0]

    class Counting(dict):  # type: ignore[type-arg]
        def get(self, key: object, default: object = None) -> object:
            looked_at[0] += 1
            return super().get(key, default)

    index._literal = Counting(index._literal)  # type: ignore[misc]
    index._prefixed = Counting(index._prefixed)  # type: ignore[misc]
    assert index.decide("User:7", "h", Operation.READ, TOPIC, "t7").allowed
    assert looked_at[0] == 2


def test_filters_name_patterns_exactly_or_by_what_a_resource_fits() -> None:
    rules = [
        rule(Operation.READ, "orders"),
        rule(Operation.READ, "ord", pattern=PatternType.PREFIXED),
        rule(Operation.READ, "*"),
        rule(Operation.READ, "other"),
        rule(Operation.READ, "orders", type=GROUP),
    ]
    match = AclFilter(type=TOPIC, name="orders", pattern=PatternFilter.MATCH)
    assert list(match.among(rules)) == rules[:3]
    assert list(AclFilter(type=TOPIC, name="orders").among(rules)) == rules[:1]
    assert list(AclFilter(name="ord", pattern=PatternFilter.LITERAL).among(rules)) == []
    assert list(AclFilter(name="ord", pattern=PatternFilter.PREFIXED).among(rules)) == rules[1:2]
    assert list(AclFilter().among(rules)) == rules
    assert list(AclFilter(principal="User:*").among(rules)) == []
    assert list(AclFilter(operation=Operation.ALL).among(rules)) == []


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (rule(Operation.READ, principal="alice"), "write User:name"),
        (rule(Operation.READ, principal="Group:a"), "write User:name"),
        (rule(Operation.READ, host="example.org"), "one IP address"),
        (rule(Operation.READ, host="10.0.0.0/8"), "one IP address"),
        (rule(Operation.READ, host="2001:DB8::0:1"), "2001:db8::1"),
        (rule(Operation.READ, ""), "1 to 255"),
        (rule(Operation.READ, "a\nb"), "1 to 255"),
        (rule(Operation.CLUSTER_ACTION), "choose ALL, READ"),
        (rule(Operation.ALTER, "other", type=ResourceType.CLUSTER), CLUSTER_NAME),
    ],
)
def test_a_rule_that_could_never_count_is_refused_with_what_to_write(wrong: AclBinding, says: str) -> None:
    with pytest.raises(InvalidAclError, match=says):
        check_binding(wrong)


def test_every_kind_of_resource_knows_its_operations() -> None:
    assert OPERATIONS_OF.keys() == set(ResourceType)
