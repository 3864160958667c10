"""What the performance tools of Kafka's distribution print, as figures. Pure.

Their megabytes have 2**20 bytes; figures here have 10**6.
"""

import re
from collections.abc import Sequence
from typing import Final

MEBIBYTE: Final = 2**20 / 10**6

_PRODUCED: Final = re.compile(
    r"\d+ records sent, [\d.]+ records/sec \((?P<mb>[\d.]+) MB/sec\), [\d.]+ ms avg latency,"
    r" (?P<max>[\d.]+) ms max latency, (?P<p50>\d+) ms 50th, \d+ ms 95th, (?P<p99>\d+) ms 99th"
)
_CONSUMED_FIELDS: Final = 10
_MB_S: Final = 3
"""Field of megabytes a second, from the first call on."""
_FETCH_MB_S: Final = 8
"""The same, without the time until the consumer had its partitions."""


def read_perf_lines(said: object) -> dict[str, float]:
    """Figures of the last line of what a tool printed, a text or a list of them; none when it is something else."""
    if isinstance(said, list):
        said = next((line for line in reversed(said) if line), "")
    if not isinstance(said, str):
        return {}
    return _produced(said) or _consumed(said.split(", "))


def _produced(line: str) -> dict[str, float]:
    found = _PRODUCED.search(line)
    if found is None:
        return {}
    return {
        "mb_s": float(found["mb"]) * MEBIBYTE,
        "p50_ms": float(found["p50"]),
        "p99_ms": float(found["p99"]),
        "max_ms": float(found["max"]),
    }


def _consumed(fields: Sequence[str]) -> dict[str, float]:
    if len(fields) != _CONSUMED_FIELDS:
        return {}
    try:
        return {
            "mb_s": float(fields[_MB_S]) * MEBIBYTE,
            "fetch_mb_s": float(fields[_FETCH_MB_S]) * MEBIBYTE,
        }
    except ValueError:
        return {}
