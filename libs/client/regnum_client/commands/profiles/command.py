"""`regnum profile`: list, create, use, delete."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from regnum_client.commands.habits.grammar import Group
from regnum_client.commands.invocation import (
    DebugOption,
    Output,
    OutputOption,
    completed,
    conflict,
    note,
    run,
    says_cluster,
    wrong_use,
)
from regnum_client.commands.profiles.choosing import known_profiles, profile_named
from regnum_client.commands.rendering import emit_rows

if TYPE_CHECKING:
    from regnum_local.named_profiles import NamedProfile, NamedProfiles

COLUMNS: Final = ("name", "current", "bootstrap", "tls", "token")

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", autocompletion=completed("profiles"), help="Name of the profile.")
]

group = typer.Typer(cls=Group, help="Clusters by name: the one in use is where commands go.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Hang the commands into the command line; the plural works too."""
    app.add_typer(group, name="profile")
    app.add_typer(group, name="profiles", hidden=True)


@group.command("list")
def list_profiles(*, output: OutputOption = Output.TABLE, _debug: DebugOption = False) -> None:
    """List all profiles; local is the cluster of the last `regnum up`."""
    _show(output)


@group.command("create")
def create(
    *,
    name: NameArgument,
    bootstrap: Annotated[
        str, typer.Option("--bootstrap", metavar="HOST:PORT,...", help="Brokers of the cluster to begin with.")
    ],
    tls_ca: Annotated[
        Path | None, typer.Option("--tls-ca", metavar="FILE", help="Authorities of the brokers' certificates.")
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option("--tls-certificate", metavar="FILE", help="The client's certificate.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its key.")] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="Credential of a delegation token.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Also where there is one of that name.")] = False,
    use: Annotated[bool, typer.Option("--use", help="Have commands go there from now on.")] = False,
    output: OutputOption = Output.TABLE,
    _debug: DebugOption = False,
) -> None:
    """Make a profile. Paths of files are kept, and not what is in them."""
    from regnum_local.named_profiles import LOCAL, NamedProfile, write_profiles  # noqa: PLC0415

    if name == LOCAL:
        raise wrong_use(f"{LOCAL} is the cluster of the last `regnum up`; choose another name")
    if not name or not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise wrong_use(f"{name!r} is no name of a profile: give letters, digits, '-', '_' and '.'")
    run(_check(bootstrap))
    profiles = known_profiles()
    if name in profiles.profiles and not replace:
        raise conflict("PROFILE_EXISTS", f"there is a profile {name!r}; give --replace, or another name")
    files = {"tls_ca": tls_ca, "tls_certificate": tls_certificate, "tls_key": tls_key, "token_file": token_file}
    paths = {part: "" if file is None else str(file.absolute()) for part, file in files.items()}
    profiles = profiles.with_profile(name, NamedProfile(bootstrap=bootstrap, **paths))
    write_profiles(_using(profiles, name) if use else profiles)
    _show(output, name)
    if not use:
        note(f"`regnum profile use {name}` has commands go there, `regnum --profile {name} COMMAND` one of them")


@group.command("use")
def use_profile(*, name: NameArgument, output: OutputOption = Output.TABLE, _debug: DebugOption = False) -> None:
    """Have commands go to a profile from now on; `regnum profile use local`: to the cluster of the last `regnum up`."""
    from regnum_local.named_profiles import write_profiles  # noqa: PLC0415

    profiles = known_profiles()
    profile_named(profiles, name)
    write_profiles(_using(profiles, name))
    _show(output, name)
    if says_cluster((), os.environ):
        note("REGNUM_BOOTSTRAP or REGNUM_PROFILE is set, and has commands go elsewhere; unset it")


@group.command("delete")
def delete(*, name: NameArgument, output: OutputOption = Output.TABLE, _debug: DebugOption = False) -> None:
    """Delete a profile; the cluster and the files that it names stay."""
    from regnum_local.named_profiles import write_profiles  # noqa: PLC0415

    profiles = known_profiles()
    if profile_named(profiles, name) is None:
        raise wrong_use(f"{name} is the cluster of the last `regnum up`; `regnum down` ends that")
    write_profiles(profiles.without(name))
    _show(output)


async def _check(bootstrap: str) -> None:
    """Raise RegnumError for what is no address."""
    from regnum_client.cluster.bootstrap import bootstrap_addresses  # noqa: PLC0415 - help is to be there at once

    bootstrap_addresses(bootstrap, {})


def _using(profiles: "NamedProfiles", name: str) -> "NamedProfiles":
    from dataclasses import replace  # noqa: PLC0415

    return replace(profiles, current=name)


def _show(output: Output, only: str | None = None) -> None:
    """All profiles, or one."""
    from regnum_local.named_profiles import LOCAL, NamedProfile  # noqa: PLC0415
    from regnum_local.profile import read_profile  # noqa: PLC0415

    profiles = known_profiles()
    last = read_profile()
    here = NamedProfile(bootstrap="" if last is None else ",".join(last.bootstrap))
    rows = [_row(name, one, profiles.current) for name, one in sorted({**profiles.profiles, LOCAL: here}.items())]
    emit_rows([row for row in rows if only in {None, row["name"]}], output, columns=COLUMNS)


def _row(name: str, profile: "NamedProfile", current: str) -> dict[str, Any]:
    return {
        "name": name,
        "current": name == current,
        "bootstrap": profile.bootstrap or None,
        "tls": bool(profile.tls_ca or profile.tls_certificate),
        "token": bool(profile.token_file),
        "tls_ca": profile.tls_ca or None,
        "tls_certificate": profile.tls_certificate or None,
        "tls_key": profile.tls_key or None,
        "token_file": profile.token_file or None,
    }
