"""Headless Chromium: what a page asks the network for, what it complains about, and what becomes of it."""

import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""What the program is called, where there is one."""
MISSING: Final = "no Chromium on this machine (Debian: apt-get install chromium)"
"""Why nothing was looked at."""
SECONDS_MAX: Final = 300.0
"""A page is shown in this time."""

FLAGS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--disable-extensions",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--enable-logging=stderr", "--log-level=0",
)  # fmt: skip
"""Nothing is asked of any network: but for addresses of this machine, names lead nowhere."""
_NO_ORIGIN: Final = "not an origin"
_CONSOLE: Final = re.compile(r"(?:INFO|WARNING|ERROR):CONSOLE[:(]\d+\)?\] (.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One page, as the browser had it."""

    dom: str
    """The document in the end, as HTML."""
    requests: frozenset[str]
    """URLs that it asked for, its own file left out."""
    console: tuple[str, ...]
    """What it wrote into the console: errors of pages are there."""


def find_browser() -> str | None:
    """Path of the program; None: there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One program of this machine."""

    def __init__(self, program: str) -> None:
        self._program: Final = program

    def show(self, page: Path) -> Shown:
        """Load a page. Raises subprocess.SubprocessError."""
        with tempfile.TemporaryDirectory(prefix="regnum-pictures-") as folder:
            log = Path(folder) / "net.json"
            ran = self._run(folder, "--dump-dom", f"--log-net-log={log}", page.absolute().as_uri())
            asked = _urls(log) - {page.absolute().as_uri()}
        return Shown(dom=ran.stdout, requests=frozenset(asked), console=tuple(_CONSOLE.findall(ran.stderr)))

    def picture(self, page: Path, into: Path, *, dark: bool, height: int) -> None:
        """Draw a page. Raises subprocess.SubprocessError."""
        with tempfile.TemporaryDirectory(prefix="regnum-pictures-") as folder:
            scheme = ["--force-dark-mode"] if dark else []
            self._run(folder, *scheme, f"--window-size=1060,{height}", f"--screenshot={into}", page.absolute().as_uri())

    def _run(self, folder: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [self._program, *FLAGS, f"--user-data-dir={folder}/profile", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS_MAX)


def _urls(log: Path) -> set[str]:
    """URLs that a page asked for, by a log of the network: what the browser asks for itself has no origin there."""
    text = log.read_text(encoding="utf-8", errors="replace")
    try:
        events = json.loads(text)["events"]
    except ValueError:
        # A browser that ends while it writes leaves the list open.
        events = json.loads(text.rstrip().rstrip(",") + "]}")["events"]
    told = [event.get("params", {}) for event in events]
    return {str(about["url"]) for about in told if about.get("initiator", _NO_ORIGIN) != _NO_ORIGIN and "url" in about}
