"""Which build a process is of, and commands whose packages are not installed."""

from importlib.metadata import Distribution
from pathlib import Path

import pytest
from regnum_broker.settings import BrokerSettings
from regnum_service import process, programs, settings
from regnum_service.errors import ExitStatus
from regnum_telemetry.build import UNKNOWN, Build, build_of, this_build
from structlog.testing import capture_logs


def installed(folder: Path, told: str | None) -> Distribution:
    place = folder / "regnum-1.2.3.dist-info"
    (place / "extra_metadata").mkdir(parents=True)
    (place / "METADATA").write_text("Metadata-Version: 2.4\nName: regnum\nVersion: 1.2.3\n")
    if told is not None:
        (place / "extra_metadata" / "build.json").write_text(told)
    return Distribution.at(place)


@pytest.mark.parametrize(
    ("told", "commit"),
    [
        ('{"commit": "0123456789ab-dirty"}', "0123456789ab-dirty"),
        (None, UNKNOWN),
        ("", UNKNOWN),
        ("{", UNKNOWN),
        ("[]", UNKNOWN),
        ('{"commit": 7}', UNKNOWN),
    ],
)
def test_the_commit_is_what_the_metadata_says_or_unknown(tmp_path: Path, told: str | None, commit: str) -> None:
    assert build_of(installed(tmp_path, told)) == Build(version="1.2.3", commit=commit)


def test_a_build_is_named_in_one_line() -> None:
    assert str(Build(version="1.2.3", commit="0123456789ab")) == "regnum 1.2.3 (commit 0123456789ab)"


def test_a_service_asked_for_its_version_says_it_and_ends(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        settings.load(BrokerSettings, ["--version"])
    assert ended.value.code == ExitStatus.DONE
    assert capsys.readouterr().out == f"{this_build()}\n"


def test_the_first_line_of_a_log_says_which_build_it_is() -> None:
    async def work() -> int:
        return 7

    with capture_logs() as lines:
        assert process.run(work) == 7
    (first,) = [line for line in lines if line["event"] == "running"]
    assert (first["version"], first["commit"]) == (this_build().version, this_build().commit)


def test_a_command_without_its_packages_says_what_to_install(capsys: pytest.CaptureFixture[str]) -> None:
    status = programs._run("regnum-broker", "regnum_broker.__main__", ("grpc", "no_such_a", "no_such_b"), "services")
    assert status == ExitStatus.WRONG_USE
    said = capsys.readouterr().err
    assert said == (
        "regnum-broker cannot run here: no_such_a, no_such_b are not installed; "
        "install with: pip install 'regnum[services]'\n"
    )


def test_a_command_of_a_package_that_was_left_out_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert programs._run("regnum-bench", "no_such_bench.command", (), "bench") == ExitStatus.WRONG_USE
    assert "no_such_bench is not installed" in capsys.readouterr().err


def test_nothing_is_missing_here() -> None:
    assert programs.missing(programs.SERVICES) == programs.missing(programs.BENCH) == ()
