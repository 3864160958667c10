"""Histories as lines that other judges read, and the command."""

import json
import random
import stat
import sys
from pathlib import Path

import pytest
from regnum_testing.linearizability.__main__ import generate, main
from regnum_testing.linearizability.by_hand import create, get, get_nothing, put, remove
from regnum_testing.linearizability.history import WrongInputError, from_line, read_history, to_line, write_history
from regnum_testing.linearizability.random_history import Shape, right_history
from regnum_testing.linearizability.register import Action, Operation, Outcome


def test_a_get_as_another_judge_writes_it() -> None:
    read = from_line('{"client":3,"key":"/a","op":"get","call":100,"return":140,"ok":true,"version":4,"value":"x"}')
    assert read == Operation(
        client=3,
        key="/a",
        action=Action.GET,
        call_ns=100,
        return_ns=140,
        outcome=Outcome.OK,
        version=4,
        value="x",
    )


def test_a_set_as_another_judge_writes_it() -> None:
    text = '{"client":1,"key":"/a","op":"set","call":90,"return":130,"outcome":"unknown","expected":3,"value":"y"}'
    write = from_line(text)
    assert (write.action, write.outcome, write.expected, write.value) == (Action.SET, Outcome.UNKNOWN, 3, "y")


def test_what_is_left_out_is_nought() -> None:
    assert from_line('{"op":"set","outcome":"ok"}').expected == 0
    assert from_line('{"op":"get"}').outcome is Outcome.NO_NODE


def test_any_version_is_minus_one() -> None:
    assert json.loads(to_line(remove(None, at=(1, 2))))["expected"] == -1
    assert from_line('{"op":"delete","outcome":"ok","expected":-1}').expected is None


def test_every_field_has_its_name() -> None:
    assert json.loads(to_line(put("é", 3, at=(1, 2), outcome=Outcome.BAD_VERSION))) == {
        "client": 1,
        "key": "/node",
        "op": "set",
        "call": 1,
        "return": 2,
        "ok": False,
        "outcome": "bad_version",
        "expected": 3,
        "value": "é",
    }
    assert json.loads(to_line(get("x", 4, at=(1, 2))))["version"] == 4


def test_a_history_survives_its_file(tmp_path: Path) -> None:
    history = right_history(random.Random(5), Shape(operations=200, keys=2))
    assert len({(one.action, one.outcome) for one in history}) > 8
    write_history(tmp_path / "history.jsonl", history)
    assert list(read_history(tmp_path / "history.jsonl")) == history


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("nonsense", "Expecting value"),
        ("[]", "a JSON object"),
        ('{"op":"watch"}', "watch"),
        ('{"op":"set","outcome":"perhaps"}', "perhaps"),
        ('{"op":"set"}', "None"),
        ('{"op":"get","call":5,"return":4}', "before its call"),
        ('{"op":"get","call":"5"}', "call is a whole number"),
        ('{"op":"get","key":5}', "key is a text"),
        ('{"op":"get","ok":true,"version":true}', "version is a whole number"),
    ],
)
def test_a_line_that_is_no_operation_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    file = tmp_path / "history.jsonl"
    file.write_text(to_line(create("a", at=(1, 2))) + "\n" + line + "\n", encoding="utf-8")
    with pytest.raises(WrongInputError, match=f"history.jsonl, line 2: .*{complaint}"):
        list(read_history(file))
    assert main(["check", str(file)]) == 2


def test_the_status_of_check_is_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    write_history(first, [create("a", at=(1, 2)), put("b", 0, at=(3, 4))])
    write_history(second, [get("a", 0, at=(5, 6))])
    assert main(["check", str(first)]) == 0
    assert "linearizable: 2 operations (0 unknown) on 1 nodes" in capsys.readouterr().out
    assert main(["check", str(first), str(second)]) == 1
    assert "all is explained up to just before this answer" in capsys.readouterr().out
    assert main(["check", str(tmp_path / "none.jsonl")]) == 2


def test_the_same_seed_makes_the_same_histories(tmp_path: Path) -> None:
    assert main(["generate", "--seed", "7", "--count", "6", "--broken-half", str(tmp_path / "one")]) == 0
    again = generate(tmp_path / "two", seed=7, count=6, broken_half=True)
    assert [file.name for file in again] == [file.name for file in sorted((tmp_path / "one").iterdir())]
    assert [file.read_text() for file in again] == [(tmp_path / "one" / file.name).read_text() for file in again]
    assert sum("broken" in file.name for file in again) == 3


def judge_that(tmp_path: Path, answer: str) -> str:
    """A judge: a program that is given a file."""
    program = tmp_path / "judge"
    program.write_text(f"#!{sys.executable}\nimport sys\n{answer}\n", encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


SECOND_OPINION = """
from regnum_testing.linearizability.__main__ import main
sys.exit(main(["check", *sys.argv[1:]]))
"""


def test_two_judges_that_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    judge = judge_that(tmp_path, SECOND_OPINION)
    right, wrong = tmp_path / "right.jsonl", tmp_path / "wrong.jsonl"
    write_history(right, [create("a", at=(1, 2)), put("b", 0, at=(3, 4))])
    write_history(wrong, [create("a", at=(1, 2)), put("b", 1, at=(3, 4))])
    assert main(["compare", "--with", judge, str(right), str(wrong)]) == 0
    assert "2 of 2 equal: 1 linearizable, 1 not" in capsys.readouterr().out


def test_a_judge_who_says_yes_to_all_is_found_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--with", judge_that(tmp_path, "sys.exit(0)"), "--count", "12"]) == 1
    shown = capsys.readouterr().out
    assert "0 not" in shown
    assert shown.count("different: ") == shown.count("-broken.jsonl") >= 3


def test_a_judge_without_a_verdict_is_no_judge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--with", judge_that(tmp_path, "sys.exit(3)"), "--count", "1"]) == 2
    assert "ended with 3" in capsys.readouterr().err
    assert main(["compare", "--with", str(tmp_path / "nobody"), "--count", "1"]) == 2


def test_a_read_without_an_answer_survives_its_line() -> None:
    read = get_nothing(at=(1, 2), outcome=Outcome.UNKNOWN)
    assert from_line(to_line(read)) == read
