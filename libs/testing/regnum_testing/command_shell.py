"""The `regnum` command in a process of its own, as a shell sees it: streams, signals, exit status."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

from regnum_testing.command_here import Ran
from regnum_testing.waiting import DEADLINE_S

COMMAND: Final = "import sys; from regnum_client.command import main; sys.exit(main())"


class Shell:
    """Runs the command beside the cluster, in a process of its own."""

    def __init__(self, folder: Path, bootstrap: str | None) -> None:
        self._environment = {
            **os.environ,
            "REGNUM_PROFILE": str(folder / "profile.json"),
            "REGNUM_BOOTSTRAP": bootstrap or "",
        }

    async def __call__(self, *arguments: str, stdin: bytes = b"") -> Ran:
        """Run it to its end."""
        process = await self.start(*arguments)
        async with asyncio.timeout(DEADLINE_S):
            out, err = await process.communicate(stdin)
        assert process.returncode is not None
        return Ran(process.returncode, out.decode(), err.decode())

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        """Run it and leave stdin open."""
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            COMMAND,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment,
        )

    async def line(self, line: str) -> Ran:
        """Run a line of bash in which ``regnum`` is the command."""
        process = await asyncio.create_subprocess_shell(
            f"regnum() {{ {sys.executable} -c '{COMMAND}' \"$@\"; }}; {line}",
            executable="/bin/bash",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment,
        )
        async with asyncio.timeout(DEADLINE_S):
            out, err = await process.communicate()
        assert process.returncode is not None
        return Ran(process.returncode, out.decode(), err.decode())
