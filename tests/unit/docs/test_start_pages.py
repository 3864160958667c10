"""First pages name what is there: commands and options that exist, twenty questions, twenty features."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from regnum_client.command import application
from typer.main import get_command

ROOT: Final = Path(__file__).parents[3]
START: Final = ROOT / "docs/start"
PAGES: Final = ("README.md", "docs/index.md", *(f"docs/start/{page.name}" for page in sorted(START.glob("*.md"))))
SPAN: Final = re.compile(r"`(regnum [^`\n]+)`|^\$ (.*)$", re.MULTILINE)


def named(page: str) -> Iterator[str]:
    """Command lines of `regnum` on a page, in text and in blocks."""
    for text in SPAN.findall(page):
        for part in re.split(r"[|&>]", text[0] or text[1]):
            line = part.partition("#")[0].strip()
            if line.startswith("regnum "):
                yield line


def unknown(line: str, root: Any) -> list[str]:
    """Words of a command line that no command or option is named by."""
    command = root
    _, *words = shlex.split(line)
    while hasattr(command, "commands") and words:
        word, *words = words
        if word not in command.commands:
            return [word]
        command = command.commands[word]
    options = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    # An offset from the end, or an age, is a value.
    return [word for word in words if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in options]


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_options_of_first_pages_exist(page: str) -> None:
    root = get_command(application())
    lines = list(named((ROOT / page).read_text(encoding="utf-8")))
    assert {line: wrong for line in lines if (wrong := unknown(line, root))} == {}


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("regnum topics list --sort size", []),
        ("regnum consume orders --from -1h", []),
        ("regnum topics lst", ["lst"]),
        ("regnum topics list --sorted", ["--sorted"]),
    ],
)
def test_a_word_that_is_no_command_is_found(line: str, wrong: list[str]) -> None:
    assert unknown(line, get_command(application())) == wrong


def test_twenty_questions_five_for_each_reader_each_with_its_answer() -> None:
    text = (START / "questions.md").read_text(encoding="utf-8")
    readers = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    numbers = [re.findall(r"^(\d+)\. .*\?.*\]\(", reader, flags=re.MULTILINE) for reader in readers]
    assert [len(of_one) for of_one in numbers] == [5, 5, 5, 5]
    assert [int(number) for of_one in numbers for number in of_one] == list(range(1, 21))


def test_twenty_features_of_which_at_least_eighteen_are_whole() -> None:
    text = (START / "features.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+)\. [^|]+ \| ([^|]+) \|$", text, flags=re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 21))
    assert all("`" in where or "](" in where or where.startswith("console") for _, where in rows)
    assert sum("**In part**" in where for _, where in rows) <= 2
