"""Principals of certificates, by Kafka's rules; the vectors are those of its SslPrincipalMapperTest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_local.plan import MAPPING_RULES
from regnum_model.principals import NAME_LENGTH_MAX
from regnum_service.access.principal_mapping import (
    SUBJECT_LENGTH_MAX,
    MappingRules,
    MappingRulesError,
    NoPrincipalError,
)

KAFKA_RULES = [
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
    r"RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
    "DEFAULT",
]
KAFKA = ", ".join(KAFKA_RULES)


def name(rules: str, subject: str) -> str:
    return MappingRules.parse(rules).principal(subject).name


@pytest.mark.parametrize(
    ("subject", "principal"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_decides(subject: str, principal: str) -> None:
    assert name(KAFKA, subject) == principal


@pytest.mark.parametrize("rules", ["", "DEFAULT", "  DEFAULT  "])
def test_without_rules_the_name_is_the_principal(rules: str) -> None:
    assert name(rules, "CN=ann,O=Regnum") == "CN=ann,O=Regnum"


def test_a_slash_and_a_comma_may_stand_in_a_rule() -> None:
    assert name(r"RULE:^CN=([^\/]+)\/(.*),O=x$/$1\/$2,$1/", "CN=a/b,O=x") == "a/b,a"
    assert name("RULE:^CN=(.{1,3}),O=x$/$1/", "CN=abc,O=x") == "abc"


def test_a_part_of_a_name_is_no_match() -> None:
    with pytest.raises(NoPrincipalError, match="no principal mapping rule"):
        name("RULE:CN=ann/ann/", "CN=ann,O=Regnum")


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAULT,",
        "DEFAULT/L",
        "DEFAULT, RULE",
        "RULE:",
        "RULE:^CN=(.*)$",
        "RULE:^CN=(.*)$/$1",
        "RULE:^CN=(.*)$/$1/X",
        "RULE:^CN=(.*)$/$1/LU",
        "RULE:^CN=(.*)$/$1/L RULE:^CN=(.*)$/$1/",
        "RULE:^CN=((.*)$/$1/",
        "RULE:^CN=(.*)$/$2/",
        "RULE:^CN=(.*)$/$0/",
        r"RULE:^CN=(.*)\1$/$1/",
        "RULE:^(?=CN)(.*)$/$1/",
        "x" * 10_001,
    ],
)
def test_what_is_no_rule_is_refused_with_words(rules: str) -> None:
    with pytest.raises(MappingRulesError) as refused:
        MappingRules.parse(rules)
    assert (
        "write" in str(refused.value)
        or "give" in str(refused.value)
        or "put" in str(refused.value)
        or "RE2" in str(refused.value)
    )


@pytest.mark.parametrize("subject", ["", "x" * (NAME_LENGTH_MAX + 1), "x" * (SUBJECT_LENGTH_MAX + 1)])
def test_a_name_that_can_be_nobodys_is_refused(subject: str) -> None:
    with pytest.raises(NoPrincipalError):
        name("DEFAULT", subject)


def test_a_hostile_name_takes_no_longer_than_its_length_asks_for() -> None:
    rules = MappingRules.parse("RULE:^(a+)+b$/$1/,DEFAULT")
    # Python's own matcher would be at it for longer than the world lasts.
    with pytest.raises(NoPrincipalError):
        rules.principal("a" * SUBJECT_LENGTH_MAX)


@pytest.mark.parametrize(
    ("subject", "principal"),
    [
        ("CN=broker-1,OU=Processes,O=Regnum", "regnum"),
        ("CN=admin,OU=Clients,O=Regnum", "admin"),
        (r"CN=admin\,OU=Processes,OU=Clients,O=Regnum", r"CN=admin\,OU=Processes,OU=Clients,O=Regnum"),
        ("CN=broker-1,OU=Processes,O=Other", "CN=broker-1,OU=Processes,O=Other"),
        # One name with a comma in it, and no unit: else it would be a super user's.
        (r"CN=x\,OU=Processes,O=Regnum", r"CN=x\,OU=Processes,O=Regnum"),
    ],
)
def test_a_development_clusters_rules_tell_processes_and_clients_apart(subject: str, principal: str) -> None:
    assert name(MAPPING_RULES, subject) == principal


@given(st.text(max_size=60))
def test_any_text_is_rules_or_refused(text: str) -> None:
    try:
        rules = MappingRules.parse(text)
    except MappingRulesError:
        return
    assert rules.rules
