"""How many processes of each kind a start has, by what was asked for and what the folder has."""

from pathlib import Path

import pytest
from regnum_local.counts import NEW, counts_of
from regnum_local.plan import EMPTY, PORT_NAMES, Member, Plan, Role
from regnum_service.errors import ExitStatus, StartRefusedError

FOLDER = Path("/data")
NOTHING_ASKED = dict.fromkeys(NEW)


def plan(**counts: int) -> Plan:
    return Plan(
        members=tuple(
            Member(role=role, id=id, ports=dict.fromkeys(PORT_NAMES[role], 1))
            for role in NEW
            for id in range(1, counts.get(role.value, 0) + 1)
        )
    )


def test_a_new_folder_gets_what_is_asked_for_and_the_defaults() -> None:
    assert counts_of(EMPTY, NOTHING_ASKED, FOLDER) == NEW
    assert counts_of(EMPTY, {**NOTHING_ASKED, Role.BROKER: 1, Role.QUOTA: 0}, FOLDER) == {
        **NEW,
        Role.BROKER: 1,
        Role.QUOTA: 0,
    }


def test_a_folder_comes_back_as_it_was_where_nothing_is_asked_for() -> None:
    small = plan(broker=1, election=1, metadata=1)
    assert counts_of(small, NOTHING_ASKED, FOLDER) == {
        Role.BROKER: 1,
        Role.ELECTION: 1,
        Role.METADATA: 1,
        Role.QUOTA: 0,
    }
    assert counts_of(small, {**NOTHING_ASKED, Role.BROKER: 4}, FOLDER)[Role.BROKER] == 4


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({Role.BROKER: 3}, "leave --brokers out, or give --brokers 4, or more to add some; `regnum brokers drain ID`"),
        ({Role.ELECTION: 1}, "leave --elections out, or give --elections 3, or more to add some. For a smaller"),
        ({Role.METADATA: 1, Role.QUOTA: 0}, "leave --metadata, --quotas out, or give --metadata 2 --quotas 1"),
    ],
)
def test_fewer_than_there_are_is_a_conflict_that_says_what_is_there(asked: dict[Role, int], said: str) -> None:
    known = plan(broker=4, election=3, metadata=2, quota=1)
    with pytest.raises(
        StartRefusedError, match="4 brokers, 3 election processes, 2 metadata processes, 1 quota"
    ) as one:
        counts_of(known, {**NOTHING_ASKED, **asked}, FOLDER)
    assert said in str(one.value)
    assert one.value.exit_status is ExitStatus.CONFLICT
