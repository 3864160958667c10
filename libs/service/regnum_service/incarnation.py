"""How a process without a data directory knows its own predecessor (safety rule S5).

A note that cannot be written or read costs time alone: a predecessor that was killed is waited for until its session
ends. So no want of room keeps a process from registering.
"""

import os
from pathlib import Path
from typing import Final

import structlog


class Incarnations:
    """The last incarnations of one process, in its run directory; without one, it has none."""

    def __init__(self, run_dir: Path | None, name: str) -> None:
        self._file = None if run_dir is None else run_dir / f"{name}.incarnations"
        self._log: Final = structlog.get_logger("incarnation")

    def previous(self) -> frozenset[str]:
        """Incarnations that may have left a registration behind."""
        return frozenset(self._read())

    def remember(self, incarnation: str) -> None:
        """Note the one that is about to register.

        The one before stays too: this process may be killed before its own registration is written.
        """
        if self._file is None:
            return
        kept = [*self._read()[-1:], incarnation]
        fresh = self._file.with_suffix(".new")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_text("\n".join(kept) + "\n", encoding="utf-8")
            os.replace(fresh, self._file)  # noqa: PTH105 - the atomic one, named as the manual does
        except OSError as error:
            self._log.warning("incarnation not noted", file=str(self._file), error=str(error))

    def _read(self) -> list[str]:
        if self._file is None:
            return []
        try:
            return self._file.read_text(encoding="utf-8").split()
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            self._log.warning("incarnation not read", file=str(self._file), error=str(error))
            return []
