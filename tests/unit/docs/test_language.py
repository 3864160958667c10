"""Pages, help texts and the SDK's docstrings are plain technical English: the field's words, components as subjects.

"who" stays for persons: that a sentence has one is for its writer to see; listed are the forms that were of components.
"""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import regnum_client.sync
from regnum_client.command import application
from typer.main import get_command

ROOT: Final = Path(__file__).parents[3]
PAGES: Final = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "decisions"),
    *sorted((ROOT / "services").glob("*/README.md")),
    *sorted((ROOT / "deploy").rglob("README.md")),
)
CODE: Final = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)]*\)", re.DOTALL)
"""What is no prose: code, and where links lead."""

INSTEAD: Final = {
    r"nobody|somebody|anybody|everybody": "name the component: no process, another caller, every client",
    r"whoever|whomever|whom|whosoever": "name the component: the broker that ..., its sender",
    r"who (?:leads?|is in sync|is controller|coordinates|serves|stands in|runs now|hears|is told|is waited for)": (
        "the leader, in-sync replicas, the controller, the coordinator"
    ),
    r"(?:is|are) told of": "is notified of, receives, is reported to",
    r"has (?:its|his) turn": "is scheduled, is next",
    r"partitions? in trouble": "unhealthy partitions",
    r"for ever": "permanently, never expires",
    r"in earnest": "carries it out",
    r"(?:be|is) had back": "recovered",
    r"give-up": "remove-damaged",
    r"brokers? of before": "earlier releases",
    r"(?:waits?|wait for it) no more": "is unblocked",
    r"comes? to be": "is created",
    r"as it comes": "by default",
    r"for company": "for more records",
    r"in (?:that|any) trouble": "in that state, unhealthy",
    r"(?:takes?|taken|took) (?:settings|them) back": "unset, undone",
    r"calls? (?:reassignments|them) back": "cancels",
    r"how far a group (?:is|has come)": "its committed offsets",
}
"""Words and forms that a reader of this field would stumble over, and the field's in their place."""
WRONG: Final = {
    re.compile(rf"(?<![\w-])(?:{form})(?![\w-])", re.IGNORECASE): instead for form, instead in INSTEAD.items()
}
SUBJECT: Final = re.compile(r"(?:^|[.;] |\*\*)Who (?!\w+ \w+.*\?)[a-z]+", re.MULTILINE)
"""A relative "Who" as subject: `Who produces all the time opens ...`; questions are none."""


def found(text: str) -> Iterator[str]:
    """Each form that is in a text, with what stands for it."""
    plain = CODE.sub(" ", text)
    for form, instead in WRONG.items():
        yield from (f"{hit.group()!r}: {instead}" for hit in form.finditer(plain))
    yield from (f"{hit.group()!r}: name the component" for hit in SUBJECT.finditer(plain))


def _helps(command: Any, name: str) -> Iterator[tuple[str, str]]:
    yield name, command.help or ""
    yield from ((f"{name} {one.name}", getattr(one, "help", None) or "") for one in command.params)
    for word, below in getattr(command, "commands", {}).items():
        yield from _helps(below, f"{name} {word}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_have_the_words_of_the_field(page: Path) -> None:
    wrong = [
        f"{page.relative_to(ROOT)}:{number}: {one}"
        for number, line in enumerate(_prose(page).splitlines(), 1)
        for one in found(line)
    ]
    assert not wrong, "\n".join(wrong)


def _prose(page: Path) -> str:
    """A page with the lines that it has, and no code that goes over several of them."""
    text = page.read_text(encoding="utf-8")
    return re.sub(r"```.*?```", lambda code: "\n" * code.group().count("\n"), text, flags=re.DOTALL)


def test_help_texts_have_the_words_of_the_field() -> None:
    texts = dict(_helps(get_command(application()), "regnum"))
    assert len(texts) > 500
    wrong = [f"{name}: {one}" for name, text in texts.items() for one in found(text)]
    assert not wrong, "\n".join(wrong)


def test_docstrings_of_the_sdk_have_the_words_of_the_field() -> None:
    kinds = [getattr(module, name) for module in (regnum_client, regnum_client.sync) for name in module.__all__]
    texts = {kind.__qualname__: kind.__doc__ or "" for kind in kinds if inspect.isclass(kind)}
    for kind in filter(inspect.isclass, kinds):
        public = inspect.getmembers(kind, lambda member: inspect.isroutine(member) or isinstance(member, property))
        texts |= {f"{kind.__qualname__}.{name}": one.__doc__ or "" for name, one in public if not name.startswith("_")}
    wrong = [f"{name}: {one}" for name, text in texts.items() for one in found(text)]
    assert len(texts) > 200
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "hits"),
    [
        ("Nobody leads it.", 1),
        ("the broker that everybody knows, whoever asks", 2),
        ("Who produces all the time opens a stream.", 1),
        ("Who may read it? A person who operates the cluster.", 0),
        ("see `regnum partitions give-up` and [a page](nobody.md)", 0),
        ("a follower is told of the change", 1),
    ],
)
def test_what_is_found(text: str, hits: int) -> None:
    assert len(list(found(text))) == hits
