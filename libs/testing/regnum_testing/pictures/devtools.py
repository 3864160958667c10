"""A page in headless Chromium that stays open: by its protocol for developers, over pipes.

Chromium reads commands from file descriptor 3 and writes answers and events to 4, each ended by a zero byte
(``--remote-debugging-pipe``): no port, and no library for sockets of the web.
"""

import base64
import contextlib
import fcntl
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from regnum_testing.pictures.browser import FLAGS

ANSWER_S: Final = 60.0
"""An answer is waited for so long."""


class Page:
    """One page, and what it asked for and complained about since it was opened."""

    def __init__(self, commands: int, answers: int) -> None:
        """Only assigns; see ``opened``."""
        self._commands: Final = commands
        self._answers: Final = answers
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.requests: list[str] = []
        """URLs."""
        self.complaints: list[str] = []
        """Errors and warnings, exceptions and what was written into the console."""

    def attach(self) -> None:
        """Take the page that there is."""
        pages = [one for one in self.ask("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        self._session = self.ask("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)["sessionId"]
        for part in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{part}.enable")

    def go(self, url: str) -> None:
        """Open an address, and return when it is loaded."""
        self.ask("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href.startsWith('http')")

    def until(self, condition: str, *, within_s: float = ANSWER_S) -> None:
        """Return when an expression of the page's language holds; raises TimeoutError."""
        deadline_s = time.monotonic() + within_s
        while not self.value(f"Boolean({condition})"):
            if time.monotonic() > deadline_s:
                raise TimeoutError(condition)
            self.wait(0.05)

    def value(self, expression: str) -> Any:
        """What an expression comes to."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        return found["result"].get("value")

    def wait(self, seconds: float) -> None:
        """Let the page go on."""
        deadline_s = time.monotonic() + seconds
        while (left_s := deadline_s - time.monotonic()) > 0:
            self._message(left_s)

    def look(self, *, width: int, height: int, dark: bool) -> None:
        """Its size in pixels, and the colours that its visitor prefers."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path: Path) -> None:
        """What is seen, as PNG."""
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot")["data"]))

    def ask(self, method: str, **about: Any) -> dict[str, Any]:
        """The answer to one command. Raises RuntimeError for one that is refused, TimeoutError without one."""
        self._number += 1
        number = self._number
        command = {"id": number, "method": method, "params": about}
        if self._session is not None:
            command["sessionId"] = self._session
        data = json.dumps(command).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data) :]
        deadline_s = time.monotonic() + ANSWER_S
        while (left_s := deadline_s - time.monotonic()) > 0:
            message = self._message(left_s)
            if message is not None and message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                found: dict[str, Any] = message["result"]
                return found
        raise TimeoutError(method)

    def _message(self, timeout_s: float) -> dict[str, Any] | None:
        """The next answer or event; None: none came in time."""
        deadline_s = time.monotonic() + timeout_s
        while b"\0" not in self._rest:
            if not select.select([self._answers], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
                return None
            some = os.read(self._answers, 1 << 20)
            if not some:
                raise RuntimeError("the browser has ended")
            self._rest += some
        raw, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, event: str, about: dict[str, Any]) -> None:
        match event:
            case "Network.requestWillBeSent":
                self.requests.append(about["request"]["url"])
            case "Log.entryAdded":
                self.complaints.append(f"{about['entry']['text']} {about['entry'].get('url', '')}")
            case "Runtime.exceptionThrown":
                self.complaints.append(str(about["exceptionDetails"].get("exception", {}).get("description", "?")))
            case "Runtime.consoleAPICalled":
                self.complaints.append(str(about["args"]))


@contextlib.contextmanager
def opened(program: str) -> Iterator[Page]:
    """A page of a new browser, which ends with the context."""
    read_here, write_there = os.pipe()
    read_there, write_here = os.pipe()
    # (Out of the way of 3 and 4, which they become.)
    theirs = [fcntl.fcntl(one, fcntl.F_DUPFD, 20) for one in (read_there, write_there)]

    def as_3_and_4() -> None:
        os.dup2(theirs[0], 3)
        os.dup2(theirs[1], 4)

    with (
        tempfile.TemporaryDirectory(prefix="regnum-pictures-", ignore_cleanup_errors=True) as folder,
        tempfile.TemporaryFile() as said,
    ):
        arguments = [*FLAGS, f"--user-data-dir={folder}", "--remote-debugging-pipe", "about:blank"]
        browser = subprocess.Popen(
            [program, *arguments],
            preexec_fn=as_3_and_4,  # noqa: PLW1509 - nothing else runs in this process when it starts one
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
        for one in (read_there, write_there, *theirs):
            os.close(one)
        try:
            page = Page(write_here, read_here)
            try:
                page.attach()
            except BrokenPipeError as error:
                status = browser.wait()
                said.seek(0)
                words = said.read()[-2000:].decode(errors="replace")
                raise RuntimeError(f"{program} ended with status {status}: {words}") from error
            yield page
        finally:
            browser.terminate()
            browser.wait()
            os.close(write_here)
            os.close(read_here)
