"""What running brokers have on disk. What goes meanwhile is passed over by ``os.walk``; ``Path.rglob`` raises."""

import contextlib
import os
from pathlib import Path


def segments_with(broker: Path, content: bytes) -> list[Path]:
    """Segments of a broker's directory that have the bytes somewhere."""
    found: list[Path] = []
    for folder, _, names in os.walk(broker):
        for path in (Path(folder, name) for name in names if name.endswith(".log")):
            with contextlib.suppress(FileNotFoundError):
                if path.stem.isdigit() and content in path.read_bytes():
                    found.append(path)
    return found


def names_ending(broker: Path, ending: str) -> list[Path]:
    """Files and folders of a broker's directory whose names end so."""
    return [
        Path(folder, name)
        for folder, folders, files in os.walk(broker)
        for name in (*folders, *files)
        if name.endswith(ending)
    ]
