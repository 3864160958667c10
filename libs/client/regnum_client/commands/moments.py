"""Moments as people write them on a command line. Pure."""

import re
from datetime import UTC, datetime
from typing import Final

# (So many digits are more than any age has, and few enough for a float.)
_AGE: Final = re.compile(r"-?(\d{1,15}(?:\.\d{1,15})?)(ms|s|m|h|d)")
_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def moment_ms(text: str, now_unix_ms: int) -> int | None:
    """The moment that an age (15m, -2h) or an ISO 8601 time names, milliseconds since 1970; None: it names none.

    A time without a zone is UTC. What would be before 1970 is 1970.
    """
    age = _AGE.fullmatch(text)
    if age is not None:
        return max(0, now_unix_ms - round(float(age[1]) * _UNIT_MS[age[2]]))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return max(0, round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))
