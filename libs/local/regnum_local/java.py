"""Java on this machine."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

JAVA_MAJOR_MIN: Final = 17
"""What Spark 4 runs on; the ZooKeeper in its jars needs no newer one."""
INSTALL: Final = f"apt-get install openjdk-{JAVA_MAJOR_MIN}-jre-headless"
"""An example of how to install it."""


def find_java(environment: Mapping[str, str]) -> str | None:
    """The program: that of JAVA_HOME, else the one on PATH; None when there is none."""
    home = environment.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").is_file():
        return str(Path(home) / "bin" / "java")
    return shutil.which("java", path=environment.get("PATH", ""))
