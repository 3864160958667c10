"""How command lines are parsed: typer's commands and groups, with what people bring along and better refusals."""

import contextlib
import sys
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from regnum_client.commands.habits import (
    HabitError,
    Known,
    MissingValueError,
    UnknownOptionError,
    rewritten,
)
from regnum_client.commands.habits.table import EVERYWHERE, OPTIONS, canonical, verb_first
from regnum_client.commands.invocation import wrong_use

_MISSING: Final = "Missing argument "
_TOO_MANY: Final = "Got unexpected extra argument"


class Command(TyperCommand):
    """A command that takes the spellings of other tools, and says what is valid where one is wrong."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See TyperCommand. Raises CommandFailedError."""
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        known, path = _known(self, ctx), ctx.command_path
        try:
            return super().parse_args(ctx, rewritten(args, known, {**EVERYWHERE, **OPTIONS.get(canonical(path), {})}))
        except (HabitError, MissingValueError, UnknownOptionError, typer.TyperException) as error:
            raise wrong_use(self._refusal(error, ctx, known)) from error

    def _refusal(self, error: Exception, ctx: Any, known: Known) -> str:
        """What is said of arguments that cannot be taken."""
        from regnum_client.commands.habits import mistakes  # noqa: PLC0415 - most command lines are right

        path = ctx.command_path
        match error:
            case HabitError():
                return f"{error}. See `{path} --help`."
            case MissingValueError():
                return mistakes.missing_value(str(error), path, _sample(self, str(error)))
            case UnknownOptionError():
                return mistakes.unknown_option(str(error), path, known.options)
            case typer.TyperException():
                return self._refused_by_parser(error.format_message(), path, ctx)
            case _:
                raise error

    def _refused_by_parser(self, said: str, path: str, ctx: Any) -> str:
        from regnum_client.commands.habits import mistakes  # noqa: PLC0415

        usage = " ".join(_plain(one) for one in self.collect_usage_pieces(ctx) if one != self.options_metavar)
        if said.startswith(_MISSING):
            return mistakes.missing_argument(said.removeprefix(_MISSING).strip("'. "), path, usage)
        if said.startswith(_TOO_MANY):
            return mistakes.too_many(said.partition("(s) ")[2].strip("()"), path, usage)
        return mistakes.wrong_value(said, path)


class Group(TyperGroup):
    """Commands of one noun. Called without one of them it shows the help, on stderr: it was not asked for."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See TyperGroup. Raises CommandFailedError."""
        if not args:
            with contextlib.redirect_stdout(sys.stderr):
                return super().parse_args(ctx, args)
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        known = _known(self, ctx)
        args = verb_first(args, self.commands, known.options)
        for one in args:
            name = one.partition("=")[0]
            if not one.startswith("-") or name in known.options:
                break
            from regnum_client.commands.habits.mistakes import option_before_command  # noqa: PLC0415

            raise wrong_use(option_before_command(name, ctx.command_path, known.options, self._shown()))
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """See TyperGroup. Raises CommandFailedError for a command that is not there."""
        if not ctx.resilient_parsing and args and self.get_command(ctx, args[0]) is None:
            from regnum_client.commands.habits.mistakes import unknown_command  # noqa: PLC0415

            raise wrong_use(unknown_command(args[0], ctx.command_path, self._shown()))
        return super().resolve_command(ctx, args)

    def _shown(self) -> list[str]:
        return [name for name, command in self.commands.items() if not command.hidden]


def _known(command: Any, ctx: Any) -> Known:
    options = dict.fromkeys(ctx.help_option_names, False)
    arguments: list[str] = []
    for one in command.params:
        if one.param_type_name == "argument":
            arguments.append(one.metavar or "")
        else:
            options |= dict.fromkeys((*one.opts, *one.secondary_opts), not one.is_flag)
    return Known(options=options, arguments=arguments)


def _plain(usage: str) -> str:
    """A piece of the usage line without the braces that typer puts around what has to be given."""
    return usage.replace("...}...", "...").strip("{}")


def _sample(command: Any, name: str) -> str:
    """What a value of an option is called in the help."""
    one = next(one for one in command.params if name in one.opts)
    numbers = "int" in str(one.type_descriptor) or "float" in str(one.type_descriptor)
    return one.metavar or ("NUMBER" if numbers else "VALUE")
