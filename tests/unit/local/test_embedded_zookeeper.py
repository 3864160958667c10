"""The embedded ZooKeeper: its configuration, its command line, and what is said where it cannot run."""

from pathlib import Path

import pytest
from regnum_local import zookeeper
from regnum_local.plan import Role
from regnum_local.store_programs import StoreMissingError, find_store_program
from regnum_model.nodes import Address
from regnum_service.settings import SESSION_TIMEOUT_S_MIN_ETCD, ServiceSettings


def options(home: Path, trusted: Path | None = None) -> dict[str, str]:
    text = zookeeper.configuration(Address(host="127.0.0.1", port=15_000), home, trusted)
    return dict(line.split("=", 1) for line in text.splitlines())


def test_it_listens_on_this_machine_alone_and_keeps_everything_in_its_folder() -> None:
    told = options(Path("/d/zookeeper"))
    assert told["clientPortAddress"] == "127.0.0.1"
    assert told["clientPort"] == "15000"
    assert told["dataDir"] == "/d/zookeeper/data"
    assert told["admin.enableServer"] == "false"
    assert "forceSync" not in told


def test_over_tls_it_has_no_other_port_and_takes_nobody_without_a_certificate() -> None:
    told = options(Path("/d"), Path("/certs/cluster-ca.pem"))
    assert told["secureClientPort"] == "15000"
    assert told["secureClientPortAddress"] == "127.0.0.1"
    assert told["ssl.clientAuth"] == "need"
    assert told["ssl.trustStore.location"] == "/certs/cluster-ca.pem"
    assert told["ssl.keyStore.location"] == "/d/keystore.pem"
    assert not {"clientPort", "clientPortAddress"} & told.keys()


def test_every_session_that_services_may_ask_for_is_granted_as_it_is() -> None:
    """A server that grants another time-out than was asked for would break the promise of the flag."""
    told = options(Path("/d"))
    bounds = {type(item).__name__: item for item in ServiceSettings.model_fields["session_timeout_s"].metadata}
    assert int(told["minSessionTimeout"]) <= bounds["Ge"].ge * 1000
    assert int(told["maxSessionTimeout"]) >= bounds["Le"].le * 1000
    # Sessions are expired in steps of a tick: a session of 5 s lasts at most a tenth longer.
    assert int(told["tickTime"]) <= SESSION_TIMEOUT_S_MIN_ETCD * 1000 / 10


def test_only_the_jars_of_the_server_are_opened() -> None:
    needed = [name for name in ("zookeeper-3.9.5.jar", "spark-core_2.13.jar", "zookeeper-notes.txt", "netty-all.jar")
              if zookeeper.is_needed(name)]  # fmt: skip
    assert needed == ["zookeeper-3.9.5.jar", "netty-all.jar"]


def test_without_java_it_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(StoreMissingError, match=r"needs Java.*apt-get install openjdk.*--coordination etcd"):
        find_store_program(Role.ZOOKEEPER, {"PATH": str(tmp_path)})


def test_java_home_comes_first(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch()
    program = find_store_program(Role.ZOOKEEPER, {"PATH": "", "JAVA_HOME": str(tmp_path)})
    assert program[0] == str(java)
    assert program[-1] == zookeeper.MAIN
    assert any(argument.startswith("-Xmx") for argument in program)
    # It shares the machine with the services: half of its processor time went into compiling itself better.
    assert "-XX:TieredStopAtLevel=1" in program
