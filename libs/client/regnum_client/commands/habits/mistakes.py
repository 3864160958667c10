"""What is said of a command line that does not parse: what is wrong, what is valid, what to try. Pure."""

from collections.abc import Collection
from typing import Final

from regnum_model.spelling import nearest

from regnum_client.commands.habits.table import WORDS, canonical

SEEN_SELDOM: Final = frozenset({"--debug", "--install-completion", "--show-completion"})
"""Options that are not named among those that there are."""


def unknown_option(name: str, path: str, options: Collection[str]) -> str:
    """An option that a command has not.

    Args:
        name: the option as it was given.
        path: the command, ``regnum topics list``.
        options: all that it has.
    """
    meant = _meant(name, [one for one in options if one.startswith("--") == name.startswith("--")])
    offered = ", ".join(sorted(one for one in options if one.startswith("--") and one not in SEEN_SELDOM))
    question = f"; did you mean {meant}?" if meant else "."
    return f"`{path}` has no option {name}{question} It has {offered}. See `{path} --help`."


def option_before_command(name: str, path: str, options: Collection[str], commands: Collection[str]) -> str:
    """An option in front of the command that it belongs to."""
    if meant := _meant(name, [*options, *(f"--{one}" for one in commands)]):
        meant = meant if meant in options else f"`{path} {meant[2:]}`"
        return f"`{path}` has no option {name}; did you mean {meant}? See `{path} --help`."
    return (
        f"`{path}` has no option {name}: options stand behind the command, such as `{path} {next(iter(commands))} "
        f"{name} ...`. See `{path} --help`."
    )


def unknown_command(word: str, path: str, commands: Collection[str]) -> str:
    """A word that is no command of a group.

    Args:
        word: as it was given.
        path: the group, ``regnum topics``.
        commands: all that it has and shows.
    """
    wrong = f"there is no command `{path} {word}`"
    key = f"{canonical(path)} {word}".strip().removesuffix(".sh")
    if there := WORDS.get(key):
        return f"{wrong}: {there}. See `{path} --help`."
    meant = _meant(word, commands)
    question = f"; did you mean `{path} {meant}`?" if meant else "."
    return f"{wrong}{question} There are {', '.join(commands)}. See `{path} --help`."


def missing_argument(name: str, path: str, usage: str) -> str:
    """An argument that has to be given."""
    return f"{name} is missing; give it: `{path} {usage}`. See `{path} --help`."


def too_many(words: str, path: str, usage: str) -> str:
    """More arguments than a command takes."""
    return (
        f"{words} is too much: the command is `{path} {usage}`; a value of several words stands in quotes. "
        f"See `{path} --help`."
    )


def missing_value(name: str, path: str, sample: str) -> str:
    """An option without the value that belongs to it."""
    return f"{name} needs a value; give {name} {sample}. See `{path} --help`."


def wrong_value(message: str, path: str) -> str:
    """A value of the wrong kind, as the parser says it, in words of this command line."""
    words = message.strip().replace("Value error, ", "").removeprefix("Invalid value for ").rstrip(".")
    for said, better in _KINDS.items():
        words = words.replace(said, better)
    return f"{words}. See `{path} --help`."


def _meant(word: str, there: Collection[str]) -> str:
    """What is alike, or the only thing that begins so; empty: nothing."""
    begun = [one for one in there if one.startswith(word)]
    return begun[0] if len(begun) == 1 else nearest(word, there)


_KINDS: Final = {
    "Input should be a valid integer, unable to parse string as an integer": "is no whole number; give one, such as 3",
    "Input should be a valid number, unable to parse string as a number": "is no number; give one, such as 2.5",
    "Input should be ": "has to be ",
}
