"""Spellings of kcat, rpk and Kafka's own tools: what they become, and that the tables name what there is."""

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest
from regnum_client.command import application, main
from regnum_client.commands.habits import Habit, HabitError, Known, MissingValueError, rewritten
from regnum_client.commands.habits.table import EVERYWHERE, OPTIONS, PROGRAMS, WORDS, first_words, verb_first
from regnum_client.commands.records.places import BeforeEnd, place_of
from regnum_records.build import build_batch
from regnum_records.record import NewRecord
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster
from typer.main import get_command

CONSUME: Final = Known(
    options={
        **dict.fromkeys(("--bootstrap", "--format", "--from", "-f", "--key-separator", "-k", "--max-messages"), True),
        **dict.fromkeys(("-n", "--output", "-o", "--group", "-g"), True),
        **dict.fromkeys(("--until-end", "--follow"), False),
    },
    arguments=("TOPIC",),
)

ACCEPTED: Final = {
    "-C -b h:1 -t o -o beginning -c 5 -e": "o --bootstrap=h:1 --from=beginning --max-messages=5 --until-end",
    "o -o -5 -o json": "o --from=-5 -o json",
    "o -c5 -K: -J": "o --max-messages=5 --key-separator=: --output=jsonl",
    "o -f %k -f end": "o --format=%k -f end",
    "-eqJ o": "--until-end --output=jsonl o",
    "--bootstrap-server h:1 --topic o --from-beginning": "o --bootstrap=h:1 --from=begin",
    "--topic=o --offset=7 -G readers": "o --from=7 --group=readers",
    "o -k -e": "o -k -e",
    "o -- -c 5": "o -- -c 5",
    "o --from end -g readers -n 3": "o --from end -g readers -n 3",
}


@pytest.mark.parametrize(("given", "meant"), ACCEPTED.items())
def test_options_of_other_tools_become_those_of_the_command(given: str, meant: str) -> None:
    assert rewritten(given.split(), CONSUME, {**EVERYWHERE, **OPTIONS["consume"]}) == meant.split()


def test_an_option_of_the_command_keeps_its_meaning() -> None:
    """``-t`` of a command that has one is not another tool's topic."""
    known = Known(options={"-t": True}, arguments=("TOPIC",))
    assert rewritten(["-t", "5"], known, EVERYWHERE) == ["-t", "5"]
    with pytest.raises(HabitError, match="-x is no option here: say so"):
        rewritten(["-x"], known, {"-x": Habit(answer="say so")})
    with pytest.raises(MissingValueError, match="-t"):
        rewritten(["-t"], known, {})


def test_the_first_words_of_other_tools_lead_to_a_command() -> None:
    assert first_words(["kafka-console-consumer.sh", "--topic", "o"]) == ["consume", "--topic", "o"]
    assert first_words(["-b", "h:1", "-L"]) == ["cluster", "describe", "-b", "h:1"]
    assert first_words(["--tls-ca", "ca.pem", "-C"]) == ["--tls-ca", "ca.pem", "-C"]
    assert first_words(["version"]) == ["--version"]
    assert first_words([]) == []
    assert verb_first(["--delete", "--topic", "o"], {"delete": None}) == ["delete", "--topic", "o"]
    assert verb_first(["--profile", "prod", "topics"], {"profile": None}, {"--profile"})[0] == "--profile"
    assert verb_first(["list", "--delete"], {"delete": None}) == ["list", "--delete"]


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    yield " ".join(path), command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, (*path, name))


def test_the_tables_name_commands_and_options_that_there_are() -> None:
    there = dict(_commands(get_command(application())))
    options = {
        path: {one for param in command.params for one in (*param.opts, *param.secondary_opts)}
        for path, command in there.items()
    }
    unknown = [
        f"{path} {one}"
        for path, habits in OPTIONS.items()
        for habit in habits.values()
        for one in habit.becomes
        if one.partition("=")[0] not in options.get(path, ())
    ]
    assert unknown == []
    assert [
        " ".join(words) for words in PROGRAMS.values() if words != ("--version",) and " ".join(words) not in there
    ] == []
    answers = [*WORDS.values(), *(one.answer for habits in (EVERYWHERE, *OPTIONS.values()) for one in habits.values())]
    named = {
        " ".join(word for word in text.split() if re.fullmatch("[a-z-]+", word) and not word.startswith("-"))
        for answer in answers
        for text in re.findall("`(?:echo key:value [|] )?regnum ([^`]*)`", answer)
    }
    assert {one for one in named if one} - there.keys() == set()


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.create("orders", partitions=2)
        values = [f"{number}".encode() for number in range(4)]
        records = [NewRecord(key=b"k", value=value, timestamp_ms=1) for value in values]
        running.partitions["orders", 0].append(build_batch(records, timestamp_ms=0))
        yield running


async def test_lines_of_other_tools_do_here_what_they_do_there(cluster: FakeCluster) -> None:
    regnum = CommandHere(cluster.bootstrap)
    at = cluster.bootstrap
    kcat = await regnum.alone(*f"-b {at} -C -t orders -p 0 -o -2 -e -K:".split())
    assert (kcat.status, kcat.out) == (0, "k:2\nk:3\n"), kcat.err
    all_of_both = await regnum.alone(*f"kafka-console-consumer.sh --bootstrap-server {at} --topic orders -e".split())
    assert all_of_both.out == "0\n1\n2\n3\n"
    more = await regnum("consume", "orders", "-o", "-9", "-c", "1", "-J", "-f", "0")
    assert more.status == 0, more.err
    created = await regnum.alone(
        *f"kafka-topics --bootstrap-server {at} --create --topic new --partitions 3 -o json".split()
    )
    assert (created.status, '"partitions": 3' in created.out) == (0, True), created.err
    listed = await regnum.alone(*f"topics --list --bootstrap-server {at}".split())
    assert [line.split()[0] for line in listed.out.splitlines()] == ["NAME", "new", "orders"]


def test_so_many_records_before_the_end() -> None:
    assert place_of("-5", 0) == BeforeEnd(5)


def test_help_is_a_word_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "topics"]) == 0
    assert "add-partitions" in capsys.readouterr().out
