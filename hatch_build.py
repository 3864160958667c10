"""What a wheel says of itself beside its version: the commit that it was built from."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE: Final = "REGNUM_COMMIT"
"""Environment variable with the commit, where the source is no checkout: in an image's build, for one."""

FILE: Final = "build.json"
"""In ``extra_metadata`` of the installed metadata; ``regnum_telemetry.build`` reads it."""


class CommitHook(BuildHookInterface):  # type: ignore[type-arg]
    """Puts ``{"commit": "..."}`` into the metadata of a wheel; nothing where nobody knows it."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before a wheel is made; an editable one follows its checkout, whose commit changes."""
        commit = None if version == "editable" else _commit(Path(self.root))
        if commit is None:
            return
        self._folder = tempfile.mkdtemp(prefix="regnum-build-")
        file = Path(self._folder) / FILE
        file.write_text(f"{json.dumps({'commit': commit})}\n", encoding="utf-8")
        build_data["extra_metadata"][str(file)] = FILE

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Called when the wheel is there."""
        folder = getattr(self, "_folder", None)
        if folder is not None:
            shutil.rmtree(folder)


def _commit(root: Path) -> str | None:
    """Twelve digits, with ``-dirty`` where a tracked file differs; None where it is not known."""
    told = os.environ.get(VARIABLE, "").strip()
    if told:
        return told
    head = _git(root, "rev-parse", "--short=12", "HEAD") if (root / ".git").exists() else None
    if not head:
        return None
    return f"{head}-dirty" if _git(root, "status", "--porcelain", "--untracked-files=no") else head


def _git(root: Path, *arguments: str) -> str | None:
    program = shutil.which("git")
    if program is None:
        return None
    done = subprocess.run([program, *arguments], cwd=root, capture_output=True, text=True, check=False)  # noqa: S603
    return done.stdout.strip() if done.returncode == 0 else None
