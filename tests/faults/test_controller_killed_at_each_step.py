"""kill -9 of the controller before and after each write and order of a change: the next one completes or undoes it."""

import logging
from pathlib import Path

import pytest
from regnum.types.v1 import errors_pb2
from regnum_client import CLUSTER_CONFIG, ConfigAlteration
from regnum_testing.failpoint_cluster import Cut, cuts_of
from regnum_testing.topic_changes import (
    CHANGES,
    ONE_WRITE,
    WATCHED,
    Change,
    killed_at,
    killed_twice_at,
    mutation_id,
)
from regnum_testing.topic_client import Hands, hands_on

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(1_800)]

LOG = logging.getLogger(__name__)

WORK_IS_LEFT = [kind for kind in CHANGES if kind not in ONE_WRITE]
"""Changes that take several writes: who carries on has something to do."""

BALLAST = ("ballast-1", "ballast-2")
"""Topics that make a successor verify its picture in several steps: what brokers answer meanwhile comes between."""


async def recorded(hands: Hands, change: Change) -> list[Cut]:
    """The steps of a change that nobody disturbs."""
    topic, mutation, failpoints = "recorded", mutation_id(), hands.failpoints
    await change.prepare(hands, topic)
    controller = await failpoints.controller()
    before = len(failpoints.steps(controller))
    answer = await change.ask(hands, topic, mutation)
    assert answer[0] == errors_pb2.ERROR_CODE_NONE
    await failpoints.nothing_left()
    cuts = cuts_of(failpoints.steps(controller)[before:], topic, WATCHED)
    await change.check(hands, topic)
    return cuts


@pytest.mark.parametrize("store", ["etcd", "zookeeper"])
@pytest.mark.parametrize("kind", CHANGES, ids=lambda kind: kind.name)
async def test_a_change_is_completed_or_undone_wherever_the_controller_is_killed(
    tmp_path: Path, kind: type[Change], store: str
) -> None:
    """On ZooKeeper at every third step: what a controller does there is the same, how a batch is cut is not."""
    change, killed, passed = kind(), 0, list[str]()
    async with hands_on(tmp_path, coordination=store) as hands:
        if change.settings:
            await hands.admin.alter_config(ConfigAlteration(resource=CLUSTER_CONFIG, set=change.settings))
        for name in BALLAST:
            await hands.admin.create_topic(name, partitions=500, replication_factor=1)
        cuts = await recorded(hands, change)
        assert any("step=write" in cut.words for cut in cuts)
        assert any("step=order" in cut.words for cut in cuts) is change.ordered
        places = [(cut, moment) for cut in cuts for moment in ("before", "after")]
        for number, (cut, moment) in enumerate(places[:: 1 if store == "etcd" else 3]):
            try:
                if await killed_at(hands, change, cut, moment, f"t{number}"):
                    killed += 1
                else:
                    passed.append(f"{moment} {cut}")
            except AssertionError as error:
                raise AssertionError(f"killed {moment} {cut}, topic t{number}: {error}") from error
    LOG.info("%s on %s: killed at %d places, never came to %s", kind.name, store, killed, passed)
    assert not [place for place in passed if "step=write" in place], "every write that was recorded is made again"
    assert killed > len(passed), passed


@pytest.mark.parametrize("kind", WORK_IS_LEFT, ids=lambda kind: kind.name)
async def test_a_change_is_completed_though_whoever_carries_on_is_killed_as_well(
    tmp_path: Path, kind: type[Change]
) -> None:
    """A third one finds what two have left: the first killed after each write, the second at its first ones."""
    change, killed, asked = kind(), 0, 0
    async with hands_on(tmp_path) as hands:
        if change.settings:
            await hands.admin.alter_config(ConfigAlteration(resource=CLUSTER_CONFIG, set=change.settings))
        cuts = [cut for cut in await recorded(hands, change) if "step=write" in cut.words]
        assert cuts
        places = [
            (cut, Cut(f"step=write path={WATCHED} n={n}"), moment)
            for cut in cuts
            for n, moment in ((1, "before"), (1, "after"), (2, "after"))
        ]
        for number, (cut, successor, moment) in enumerate(places):
            try:
                both = await killed_twice_at(hands, change, cut, successor, moment, f"t{number}")
            except AssertionError as error:
                raise AssertionError(
                    f"killed after {cut}, and {moment} {successor}, topic t{number}: {error}"
                ) from error
            killed, asked = killed + both, asked + 1
    LOG.info("%s: both killed at %d of %d places", kind.name, killed, asked)
    assert killed
