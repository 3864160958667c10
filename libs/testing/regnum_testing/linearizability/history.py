"""Histories as lines of JSON, one operation a line, in the form that other judges read too.

    {"client":3,"key":"/a","op":"get","call":100,"return":140,"ok":true,"outcome":"ok","version":4,"value":"x"}
    {"client":1,"key":"/a","op":"set","call":90,"return":130,"ok":false,"outcome":"unknown","expected":3,"value":"y"}

``call`` and ``return`` are nanoseconds of one clock. ``expected`` -1 means any version. A get that found no node has
``ok`` false. What is left out is 0, false or empty; the return of an unknown outcome means nothing.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from regnum_testing.linearizability.register import Action, Operation, Outcome

_ANY_VERSION: Final = -1


class WrongInputError(Exception):
    """A line is no operation; the message names file and line."""


def to_line(operation: Operation) -> str:
    """One operation, without the end of the line."""
    fields: dict[str, object] = {
        "client": operation.client,
        "key": operation.key,
        "op": operation.action.value,
        "call": operation.call_ns,
        "return": operation.return_ns,
        "ok": operation.outcome is Outcome.OK,
        "outcome": operation.outcome.value,
    }
    if operation.action in {Action.SET, Action.DELETE}:
        fields["expected"] = _ANY_VERSION if operation.expected is None else operation.expected
    if operation.version is not None:
        fields["version"] = operation.version
    if operation.value is not None:
        fields["value"] = operation.value
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def from_line(line: str) -> Operation:
    """One operation; raises ValueError with what is wrong."""
    fields = json.loads(line)
    if not isinstance(fields, dict):
        raise TypeError("an operation is a JSON object")
    action = Action(fields.get("op"))
    outcome = _outcome(action, fields)
    call_ns, return_ns = _number(fields, "call"), _number(fields, "return")
    if outcome is not Outcome.UNKNOWN and return_ns < call_ns:
        raise ValueError(f"it returns at {return_ns}, before its call at {call_ns}")
    expected = _number(fields, "expected") if action in {Action.SET, Action.DELETE} else _ANY_VERSION
    found = action is Action.GET and outcome is Outcome.OK
    return Operation(
        client=_number(fields, "client"),
        key=_text(fields, "key"),
        action=action,
        call_ns=call_ns,
        return_ns=return_ns,
        outcome=outcome,
        expected=None if expected < 0 else expected,
        version=_number(fields, "version") if found else None,
        value=_text(fields, "value") if found or action in {Action.CREATE, Action.SET} else None,
    )


def _outcome(action: Action, fields: dict[str, Any]) -> Outcome:
    if action is not Action.GET:
        return Outcome(fields.get("outcome"))
    if fields.get("outcome") == Outcome.UNKNOWN.value:
        return Outcome.UNKNOWN
    return Outcome.OK if fields.get("ok", False) is True else Outcome.NO_NODE


def _number(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is a whole number, not {value!r}")
    return value


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str):
        raise TypeError(f"{name} is a text, not {value!r}")
    return value


def write_history(path: Path, operations: Iterable[Operation]) -> None:
    """Write a file of operations, one a line."""
    with path.open("w", encoding="utf-8") as file:
        for operation in operations:
            file.write(to_line(operation) + "\n")


def read_history(path: Path) -> Iterator[Operation]:
    """The operations of a file; raises WrongInputError for a line that is none, OSError for a file that is not."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield from_line(line)
            except (ValueError, TypeError) as error:
                raise WrongInputError(f"{path}, line {number}: {error}") from None
