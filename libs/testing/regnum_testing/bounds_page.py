"""docs/request_bounds.md, made from the table of bounds and the calls that are generated.

python -m regnum_testing.bounds_page            exit 1 when the page says something else
python -m regnum_testing.bounds_page --write    write it; ``make proto``
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Final

from google.protobuf.descriptor import MethodDescriptor
from regnum_service.limits.answers import REQUEST_WEIGHT, RESERVED_BYTES_MAX, RESERVED_BYTES_MIN
from regnum_service.request_sizes import CONTROL_BYTES_MAX

from regnum_testing.made_file import ROOT, look_or_write
from regnum_testing.request_bounds import (
    CLUSTER,
    LIST,
    OBJECTS,
    PREFIX,
    RECORDS,
    TEXT,
    LongField,
    Refused,
    fields,
    methods,
    sender_of,
)

PAGE: Final = ROOT / "docs" / "request_bounds.md"

INTRODUCTION: Final = f"""\
# What a request may ask for

Made from `libs/testing/regnum_testing/request_bounds.py` and the protocol by `make proto`: change them there. Tests
send one more than each bound (`tests/unit/service/test_request_bounds.py`).

Before a request of a client is parsed (INVALID_REQUEST, nothing was done):

| what | bound | constant |
|---|---|---|
| a request without records | {CONTROL_BYTES_MAX:,} bytes | `CONTROL_BYTES_MAX` |
| a request with records | `--socket-request-max-bytes` | - |
| messages inside of one | {OBJECTS.most:,} | `{OBJECTS.constant}` |
| a text, without records | {TEXT.most:,} bytes | `{TEXT.constant}` |
| a list without records, of numbers in one field too | {LIST.most:,} elements | `{LIST.constant}` |
| messages within messages | 100 (protobuf's) | - |

No request has a map. In a call with a stream of requests each message is such a request. Before it is carried out
(THROTTLING_QUOTA_EXCEEDED with the time to wait, nothing was done): what it holds, unpacks and is answered has to fit
into its connection's and its principal's share of the process
([decision 89](decisions/0089-one-budget.md));
{REQUEST_WEIGHT} times a request of {RESERVED_BYTES_MIN // REQUEST_WEIGHT:,} bytes or more is reserved for its answer,
{RESERVED_BYTES_MAX:,} bytes at most.
"""

SECTIONS: Final = (
    (
        "",
        "## Calls of clients",
        "Bounds of their own; every other list, text and number goes by the first table.",
    ),
    (
        RECORDS,
        "## Calls with records",
        "All else is bounded by the size of the request, the messages inside, and the topic's `max.message.bytes`.",
    ),
    (
        CLUSTER,
        "## Calls of the cluster's own processes",
        "At internal listeners, which take no others. All else is bounded by the size of the message.",
    ),
)


def page() -> str:
    """All of it."""
    lines = [INTRODUCTION]
    for sender, title, words in SECTIONS:
        lines += [title, "", words, "", "| call | bounds of its own |", "|---|---|"]
        lines += sorted(f"| `{_name(one)}` | {_bounds(one)} |" for one in methods() if sender_of(one) == sender)
        lines.append("")
    return "\n".join(lines)


def _name(method: MethodDescriptor) -> str:
    return f"{method.containing_service.full_name.removeprefix(PREFIX)}/{method.name}"


def _bounds(method: MethodDescriptor) -> str:
    return "; ".join(_own(fields(method))) or "-"


def _own(found: Iterator[LongField]) -> Iterator[str]:
    for one in found:
        bound = one.bound
        if isinstance(bound, Refused) and bound not in (LIST, TEXT, OBJECTS):
            unit = " bytes" if bound.in_bytes else ""
            yield f"`{one.name}`: {bound.most:,}{unit} (`{bound.constant}`)"


def main(arguments: Sequence[str]) -> int:
    """Exit status of the tool."""
    return look_or_write(PAGE, page, arguments, tool="bounds_page")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
