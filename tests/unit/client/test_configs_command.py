"""Settings through the SDK and `regnum configs`: what is sent, stdout, stderr, exit status."""

import asyncio
import json
import shlex
from collections.abc import AsyncIterator

import pytest
from regnum.types.v1 import errors_pb2
from regnum_client import CLUSTER_CONFIG, Admin, ConfigAlteration, ConfigResource, NewTopic
from regnum_client.admin.configs import ConfigEntry, ConfigSource
from regnum_client.admin.topics import new_topic_to_wire
from regnum_client.commands.configs import undoing
from regnum_client.commands.invocation import Output, reach_of
from regnum_service.errors import RegnumError
from regnum_testing.clock import SkippingClock
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.waiting import DEADLINE_S, until, within

MIN, FACTOR = "min.insync.replicas", "default.replication.factor"
ORDERS = ConfigResource(topic="orders")


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.create("orders", partitions=1)
        yield running


@pytest.fixture
def regnum(cluster: FakeCluster) -> CommandHere:
    return CommandHere(cluster.bootstrap)


async def test_settings_are_changed_and_described(cluster: FakeCluster) -> None:
    async with Admin(cluster.bootstrap, timeout_s=5.0) as admin:
        nowhere = ConfigResource(topic="nowhere")
        done = await admin.alter_configs(
            [
                ConfigAlteration(resource=CLUSTER_CONFIG, set={FACTOR: "2"}),
                ConfigAlteration(resource=ORDERS, set={FACTOR: "2"}),
            ]
        )
        assert done[CLUSTER_CONFIG] is None
        refused = done[ORDERS]
        assert refused is not None
        assert refused.code == errors_pb2.ERROR_CODE_INVALID_CONFIG
        await admin.alter_config(ConfigAlteration(resource=ORDERS, set={MIN: "1"}))
        found = await admin.describe_configs([CLUSTER_CONFIG, ORDERS, nowhere])
        assert isinstance(found[nowhere], RegnumError)
        cluster_entries, own = found[CLUSTER_CONFIG], found[ORDERS]
        assert not isinstance(cluster_entries, RegnumError)
        assert not isinstance(own, RegnumError)
        assert [(one.name, one.value) for one in cluster_entries] == [(FACTOR, "2"), (MIN, "2")]
        assert [(one.value, one.source.value) for one in own] == [("1", "topic")]
        await admin.alter_config(ConfigAlteration(resource=ORDERS, delete=[MIN]))
        assert [one.source.value for one in await admin.describe_config(ORDERS)] == ["cluster"]


async def test_a_change_with_an_unknown_outcome_is_repeated_and_happens_once(cluster: FakeCluster) -> None:
    """Its mutation id is the same in every repeat (safety rule S20)."""
    cluster.elections[1].silent_answers = 2
    async with Admin(cluster.bootstrap, timeout_s=5.0) as admin:
        await admin.alter_config(ConfigAlteration(resource=CLUSTER_CONFIG, set={MIN: "3"}))
        await admin.alter_config(ConfigAlteration(resource=CLUSTER_CONFIG, set={MIN: "4"}))
    assert cluster.calls["IncrementalAlterConfigs"] == 4
    assert len(cluster.configs.mutations) == 2
    assert cluster.configs.values[""][MIN] == "4"


async def test_a_change_that_nobody_answers_in_time_says_where_to_look(cluster: FakeCluster) -> None:
    cluster.elections[1].silent_answers = 10_000
    clock = SkippingClock()
    async with Admin(cluster.bootstrap, timeout_s=DEADLINE_S, clock=clock) as admin:
        changing = asyncio.create_task(admin.alter_config(ConfigAlteration(resource=CLUSTER_CONFIG, set={MIN: "3"})))
        await until(lambda: cluster.calls["IncrementalAlterConfigs"] > 1, "it is sent again")
        clock.skipped_s += DEADLINE_S
        with pytest.raises(RegnumError, match="regnum configs describe"):
            await within(changing)
    assert len(cluster.configs.mutations) == 1


async def test_settings_are_replaced_by_what_is_named(cluster: FakeCluster) -> None:
    cluster.elections[1].silent_answers = 1
    async with Admin(cluster.bootstrap, timeout_s=5.0) as admin:
        await admin.alter_config(ConfigAlteration(resource=ORDERS, set={MIN: "1"}))
        assert await admin.replace_configs({ORDERS: {"segment.ms": "5000"}}) == {ORDERS: None}
    assert cluster.configs.values["orders"] == {"segment.ms": "5000"}


@pytest.mark.parametrize(("factor", "set_on_the_wire"), [(None, None), (0, 0), (-1, -1), (3, 3)])
def test_a_factor_that_is_left_out_and_one_of_zero_differ_on_the_wire(
    factor: int | None, set_on_the_wire: int | None
) -> None:
    message = new_topic_to_wire(NewTopic(name="t", replication_factor=factor), "m")
    assert (message.replication_factor if message.HasField("replication_factor") else None) == set_on_the_wire


async def test_alter_and_describe(regnum: CommandHere, cluster: FakeCluster) -> None:
    done = await regnum("configs", "alter", "--cluster", "--set", f"{MIN}=3", "--set", f"{FACTOR}=2", "-o", "json")
    assert done.status == 0, done.err
    assert {row["name"]: row["value"] for row in json.loads(done.out)} == {MIN: "3", FACTOR: "2"}
    await regnum("configs", "alter", "--topic", "orders", "--set", f"{MIN}=1")
    shown = await regnum("configs", "describe", "--topic", "orders", "-o", "json")
    assert json.loads(shown.out) == [
        {
            "resource": "topic orders",
            "topic": "orders",
            "broker": None,
            "name": MIN,
            "value": "1",
            "source": "topic",
            "valid_values": "",
            "documentation": "",
            "read_only": False,
            "sensitive": False,
        }
    ]
    await regnum("configs", "alter", "--topic", "orders", "--delete", MIN)
    assert "cluster" in (await regnum("configs", "describe", "--topic", "orders")).out
    everything = await regnum("configs", "describe", "-o", "json")
    assert {row["name"] for row in json.loads(everything.out)} == {MIN, FACTOR}
    dry = await regnum("configs", "alter", "--cluster", "--set", f"{MIN}=1", "--dry-run", "-o", "json")
    assert dry.status == 0
    assert "nothing was changed" in dry.err
    changed = [row for row in json.loads(dry.out) if row["would_change"]]
    assert [(row["name"], row["value"] == "1", row["would_be"]) for row in changed] == [(MIN, False, "1")]
    people = await regnum("configs", "alter", "--cluster", "--set", f"{MIN}=1", "--dry-run")
    titles, *lines = people.out.splitlines()
    assert titles.split() == ["RESOURCE", "NAME", "VALUE", "SOURCE", "WOULD", "BE"]
    assert [line.split()[-1] for line in lines] == ["1"], "of the others nothing would change"
    assert people.err == "nothing was changed; run it again without --dry-run\n"
    assert cluster.configs.values[""][MIN] == "3"


async def test_a_change_shows_what_was_and_the_command_that_undoes_it(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    await regnum("topics", "config", "set", "orders", f"{MIN}=1")
    done = await regnum("configs", "alter", "--topic", "orders", "--set", "segment.ms=5000", "--delete", MIN)
    assert [line.split()[-4:] for line in done.out.splitlines()] == [
        ["NAME", "WAS", "VALUE", "SOURCE"], [MIN, "1", "2", "cluster"], ["segment.ms", "-", "5000", "topic"],
    ]  # fmt: skip
    undo = shlex.split(done.err.removeprefix("undo: "))
    assert undo[:3] == ["regnum", "configs", "alter"]
    assert (await regnum(*undo[1:])).status == 0
    assert cluster.configs.values["orders"] == {MIN: "1"}
    again = await regnum("configs", "set", "--topic", "orders", f"{MIN}=1", "-o", "json")
    assert [(row["was"], row["changed"], row["undo"]) for row in json.loads(again.out)] == [("1", False, None)]
    people = await regnum("configs", "set", "--topic", "orders", f"{MIN}=1")
    assert people.err == "nothing has changed: these were the values before\n"


async def test_a_setting_that_is_not_described_without_a_value_is_shown_to_be_gone(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    rate = "follower.replication.throttled.rate"
    await regnum("configs", "set", "--cluster", f"{rate}=5000")
    done = await regnum("configs", "unset", "--cluster", rate)
    assert done.out.splitlines()[1].split()[:4] == ["cluster", rate, "5000", "-"]
    assert (await regnum(*shlex.split(done.err.removeprefix("undo: "))[1:])).status == 0
    assert cluster.configs.values[""][rate] == "5000"


def test_the_command_that_undoes_is_safe_in_a_shell_and_has_no_secrets() -> None:
    def was(name: str, value: str, *, secret: bool = False) -> ConfigEntry:
        return ConfigEntry(name=name, value=value, source=ConfigSource.BROKER, sensitive=secret)

    broker = ConfigResource(broker=1)
    odd = undoing(broker, {"a": was("a", "x y; rm -rf $HOME")}, ["a"])
    assert shlex.split(odd) == ["regnum", "configs", "set", "--broker", "1", "a=x y; rm -rf $HOME"]
    assert undoing(broker, {"key": was("key", "", secret=True)}, ["key"]) == ""
    assert undoing(CLUSTER_CONFIG, {"a": was("a", "1")}, ["a"]) == "regnum configs unset --cluster a"
    reach = reach_of(["--tls-ca", "ca.pem", "--profile=prod", "configs", "set", "-b", "h:1"])
    undo = undoing(CLUSTER_CONFIG, {"a": was("a", "1")}, ["a"], reach)
    assert undo == "regnum --tls-ca=ca.pem --profile=prod configs unset --cluster --bootstrap=h:1 a"
    assert reach_of(["configs", "set", "a=1"]) == ((), ()), "a profile in use, and the environment, say it again"


@pytest.mark.parametrize("form", list(Output))
async def test_every_form_shows_what_was_set_and_unset_of_a_broker(
    regnum: CommandHere, cluster: FakeCluster, form: str
) -> None:
    done = await regnum("configs", "set", "--broker", "1", f"{MIN}=3", "-o", form)
    undo = f"regnum configs unset --broker 1 --bootstrap={cluster.bootstrap} {MIN}"
    assert (done.status, done.err) == (0, f"undo: {undo}\n" if form == "table" else "")
    # (YAML breaks long lines.)
    assert undo in " ".join((done.out + done.err).split())
    assert MIN in done.out
    assert cluster.configs.values["1"] == {MIN: "3"}
    assert MIN in (await regnum("configs", "describe", "--broker", "1", "-o", form)).out
    dry = await regnum("configs", "unset", "--broker", "1", MIN, "--dry-run", "-o", form)
    assert dry.status == 0
    assert cluster.configs.values["1"] == {MIN: "3"}
    assert (await regnum("configs", "unset", "--broker", "1", MIN, "-o", form)).status == 0
    assert cluster.configs.values["1"] == {}


@pytest.mark.parametrize(
    ("arguments", "status", "advice"),
    [
        (["alter", "--set", f"{MIN}=1"], 2, "--cluster"),
        (["alter", "--cluster"], 2, "--set"),
        (["alter", "--cluster", "--set", MIN], 2, "NAME=VALUE"),
        (["alter", "--cluster", "--set", f"{MIN}=1", "--delete", MIN], 2, "both"),
        (["set", f"{MIN}=1"], 2, "--broker ID"),
        (["unset", "--cluster", MIN, MIN], 2, "stands twice"),
        (["set", "--broker", "1", "--cluster", f"{MIN}=1"], 2, "one of them"),
        (["set", "--broker", "many", f"{MIN}=1"], 2, "--broker"),
        (["set", "--cluster", MIN], 2, "NAME=VALUE"),
        (["alter", "--cluster", "--topic", "t", "--set", f"{MIN}=1"], 2, "one of them"),
        (["alter", "--cluster", "--set", "other=1"], 2, "a setting is one of"),
        (["describe", "--topic", "nowhere"], 3, "nowhere"),
    ],
)
async def test_wrong_use_says_what_to_do(regnum: CommandHere, arguments: list[str], status: int, advice: str) -> None:
    ended = await regnum("configs", *arguments)
    assert (ended.status, ended.out) == (status, "")
    assert advice in ended.err
