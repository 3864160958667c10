"""Small JSON files that are whole or not there."""

import json
import os
from pathlib import Path
from typing import Any


def write_json(path: Path, value: object) -> None:
    """Replace a file in one step; readers see the old or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)


def read_json(path: Path) -> Any | None:
    """The content; None when there is no such file. Raises ValueError when it is not JSON."""
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    return json.loads(text)
