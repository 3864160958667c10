"""Pages name what is there: commands and options that exist; first pages have twenty questions, twenty features."""

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
PAGES: Final = (
    "README.md",
    *(str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "decisions"),
)
"""All but decisions, which tell of commands as they were."""
SPAN: Final = re.compile(r"`(regnum [^`\n]+)`|^\$ (.*)$", re.MULTILINE)
MISTAKES: Final = ("regnum topics lst",)
"""What a page shows to be wrong."""
EVERYWHERE: Final = ("--help", "-h", "--version", "--install-completion")
TAKE_NAMES: Final = ("logs",)
"""Commands that have commands, and take names of processes in their place."""
PLACEHOLDER: Final = re.compile(r"[A-Z]+|\.\.\.")


def named(page: str) -> Iterator[str]:
    """Command lines of `regnum` on a page, in text and in blocks; of one that goes on in the next line its first."""
    for text in SPAN.findall(page):
        for part in re.split(r"[|&>;]", text[0] or text[1]):
            line = part.partition("#")[0].strip()
            if line.startswith("regnum "):
                yield line


def unknown(line: str, root: Any) -> list[str]:
    """Words of a command line that no command or option is named by, and options that lack their value."""
    command, found = root, []
    words = iter(split(line)[1:])
    for word in words:
        # An offset from the end, or an age, is a value.
        if re.match(r"--?[a-z]", word):
            name, has_value, _ = word.partition("=")
            option = next((one for one in command.params if name in (*one.opts, *one.secondary_opts)), None)
            if option is None:
                found += [] if name in EVERYWHERE else [word]
            elif not option.is_flag and not has_value and next(words, None) is None:
                found.append(f"{word} without its value")
        elif hasattr(command, "commands") and not PLACEHOLDER.fullmatch(word):
            if word not in command.commands:
                return [] if command.name in TAKE_NAMES else [word]
            command = command.commands[word]
    return found


def split(line: str) -> list[str]:
    """As a shell does; a quote that ends in a later line is left open."""
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


@pytest.fixture(scope="module")
def root() -> Any:
    """The whole command."""
    return get_command(application())


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_options_of_pages_exist_and_have_their_values(page: str, root: Any) -> None:
    lines = [line for line in named((ROOT / page).read_text(encoding="utf-8")) if line not in MISTAKES]
    assert {line: wrong for line in lines if (wrong := unknown(line, root))} == {}


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("regnum topics list --sort size", []),
        ("regnum consume orders --from -1h", []),
        ("regnum topics lst", ["lst"]),
        ("regnum topics list --sorted", ["--sorted"]),
        ("regnum topics describe --trouble", ["--trouble without its value"]),
        ("regnum topics describe --trouble offline --offsets", []),
        ("regnum --profile staging topics lst", ["lst"]),
        ("regnum logs broker-1 -n 100 -f", []),
    ],
)
def test_a_word_that_is_no_command_is_found(line: str, wrong: list[str], root: Any) -> None:
    assert unknown(line, root) == wrong


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
