"""Which protocols processes speak, and the words for those that do not."""

import pytest
from regnum_model.configs import DEFINITIONS, INTER_BROKER_PROTOCOL
from regnum_model.protocols import (
    KNOWN,
    OF_FIRST_RELEASE,
    PROTOCOL,
    UNSAID,
    ProtocolRange,
    RegisteredProcess,
    ReleaseInfo,
    not_raised,
    refusal,
    speaks_not,
)


def process(id: int, low: int, high: int, problem: str = "") -> RegisteredProcess:
    build = ReleaseInfo(release="9.9", protocols=ProtocolRange(low=low, high=high))
    return RegisteredProcess(role="broker", id=id, build=build, problem=problem)


def test_what_is_known_is_what_the_setting_may_be() -> None:
    definition = DEFINITIONS[INTER_BROKER_PROTOCOL]
    assert INTER_BROKER_PROTOCOL == PROTOCOL
    assert definition.parse(str(KNOWN.low)) == KNOWN.low == definition.low
    assert definition.parse(str(KNOWN.high)) == KNOWN.high
    with pytest.raises(ValueError, match=r"."):
        definition.parse(str(KNOWN.high + 1))


def test_who_says_nothing_is_of_the_first_release_which_never_changes() -> None:
    assert ReleaseInfo.of({}) == UNSAID
    assert UNSAID.fields() == {}
    assert UNSAID.shown == "0.1.0"
    assert (OF_FIRST_RELEASE.low, OF_FIRST_RELEASE.high) == (1, 2)


def test_what_a_build_says_is_read_back() -> None:
    build = ReleaseInfo(release="0.2.0", protocols=ProtocolRange(low=2, high=5))
    assert ReleaseInfo.of(build.fields()) == build


@pytest.mark.parametrize("protocols", [[2], [2, 1], [0, 1], ["1", "2"], [True, 2], [1, 10_001], 2, {"low": 1}])
def test_what_is_no_range_is_refused(protocols: object) -> None:
    with pytest.raises(ValueError, match=r"\[lowest, highest\]"):
        ReleaseInfo.of({"release": "0.2.0", "protocols": protocols})


@pytest.mark.parametrize("release", [1, None, "x" * 101, "\ud800", "a\nb", "\x1b[31m"])
def test_what_is_no_release_is_refused(release: object) -> None:
    with pytest.raises(ValueError, match="release is not a short string"):
        ReleaseInfo.of({"release": release})


def test_who_stands_in_the_way_is_named_with_what_it_speaks() -> None:
    lacking = speaks_not([process(1, 1, 3), process(2, 1, 2), process(3, 1, 3, problem="not JSON")], 3)
    assert [one.id for one in lacking] == [2, 3]
    said = not_raised(3, lacking)
    assert "broker 2 (9.9, speaks 1 to 2)" in said
    assert "broker 3 (not JSON)" in said
    assert "regnum status" in said
    assert "and 2 more" in not_raised(3, tuple(process(id, 1, 2) for id in range(7)))


def test_a_process_that_does_not_speak_what_is_in_force_is_told_what_to_start() -> None:
    middle = ReleaseInfo(release="0.2.0", protocols=ProtocolRange(low=2, high=3))
    assert not refusal(2, middle)
    assert not refusal(3, middle)
    assert "start a release that speaks 4" in refusal(4, middle)
    assert "start the release before it" in refusal(1, middle)
    assert "speaks 1 to 2" in refusal(3, UNSAID)
