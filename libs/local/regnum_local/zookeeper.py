"""The embedded ZooKeeper: the server inside pyspark's jars, one node, for this machine alone. Pure.

Sessions are expired in steps of a tick: half a second keeps a session of 5 s from lasting noticeably longer than the
services asked for, and lets tests have shorter ones.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from regnum_model.nodes import Address

MAIN: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"
"""Runs one node that needs no others."""
TICK_MS: Final = 500
SESSION_MS_MIN: Final = 2 * TICK_MS
SESSION_MS_MAX: Final = 300_000
"""As long as the services' own setting allows."""
HEAP_MB: Final = 1024
"""At most: a node takes some 1.3 KB, and a partition is two of them, so that 256 MB end at 85,000 partitions. What a
small cluster keeps is some megabytes, and the heap is as large as it has to be."""
JARS: Final = ("zookeeper-", "slf4j-api-", "log4j-", "netty-", "metrics-core-", "snappy-java-", "commons-io-")
"""How the names of the jars begin that the server needs. The folder holds hundreds, and Java opens what it is given."""
CONFIGURATION: Final = "zoo.cfg"
KEYSTORE: Final = "keystore.pem"
"""By this ending the server knows that it is PEM."""


def is_needed(jar: str) -> bool:
    """Whether the server needs the jar of that name."""
    return jar.endswith(".jar") and jar.startswith(JARS)


def program(java: str, jars: Iterable[Path]) -> tuple[str, ...]:
    """How the server is called; the path of its configuration follows."""
    return (
        java,
        f"-Xmx{HEAP_MB}m",
        "-XX:+UseSerialGC",
        # The second compiler takes as much processor time in the first minutes as all that the server does, and the
        # services share the machine.
        "-XX:TieredStopAtLevel=1",
        # No file in the machine's temporary folder that says which Java processes run.
        "-XX:-UsePerfData",
        "-Djava.awt.headless=true",
        # Without a configuration file log4j writes to the console, errors only.
        "-Dorg.apache.logging.log4j.level=WARN",
        # Or it writes at every start that it registers its logger there.
        "-Dzookeeper.jmx.log4j.disable=true",
        *("-cp", ":".join(str(jar) for jar in sorted(jars))),
        MAIN,
    )


def configuration_path(home: Path) -> Path:
    """Where the server's configuration is."""
    return home / CONFIGURATION


def keystore_path(home: Path) -> Path:
    """Where the server's certificate and its key are, in one file, as the server wants them."""
    return home / KEYSTORE


def configuration(client: Address, home: Path, trusted: Path | None = None) -> str:
    """The server's configuration. Writes are synced to disk, as ZooKeeper does by default.

    Args:
        client: where it listens.
        home: its folder.
        trusted: file of the authority whose certificates clients have to show; None: it speaks plaintext.
    """
    lines: dict[str, object] = {
        "tickTime": TICK_MS,
        "minSessionTimeout": SESSION_MS_MIN,
        "maxSessionTimeout": SESSION_MS_MAX,
        "dataDir": home / "data",
        "clientPort" if trusted is None else "secureClientPort": client.port,
        "clientPortAddress" if trusted is None else "secureClientPortAddress": client.host,
        # Every service holds a session or two, all from one address.
        "maxClientCnxns": 0,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "srvr,ruok",
        "autopurge.snapRetainCount": 3,
        "autopurge.purgeInterval": 24,
    }
    if trusted is not None:
        lines |= {
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": keystore_path(home),
            "ssl.trustStore.location": trusted,
            "ssl.clientAuth": "need",
        }
    return "".join(f"{key}={value}\n" for key, value in lines.items())
