"""Names that a shell completes: processes of this machine, and profiles, topics and groups.

A cluster is asked for two seconds at most. Where it does not answer, nothing is offered, and nothing is said: the line
that is being typed stays as it is.
"""

from collections.abc import Callable, Coroutine, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import Any, Final

import typer

from regnum_client.commands.invocation import CommandFailedError, run

ASKED_S: Final = 2.0
"""How long a person at the keyboard waits."""
OFFERED_MAX: Final = 100
"""Names that are offered; more are no help."""


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Topics of the cluster that the line names, or of the profile; the cluster's own only by their underscores."""

    async def names() -> list[str]:
        from regnum_model.topic_filter import TopicFilter  # noqa: PLC0415 - gRPC is loaded when there is something to do

        from regnum_client.admin.admin import Admin  # noqa: PLC0415

        chosen = TopicFilter(prefix=incomplete, internal=None if incomplete.startswith("_") else False)
        async with (
            Admin(ctx.params.get("bootstrap"), timeout_s=ASKED_S) as admin,
            aclosing(admin.summarize_topics(chosen=chosen, limit=OFFERED_MAX)) as pages,
        ):
            return [topic.name for topic in await anext(pages, ())]

    return _answer(names())


def group_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Consumer groups of that cluster."""

    async def names() -> list[str]:
        from regnum_client.admin.admin import Admin  # noqa: PLC0415

        async with Admin(ctx.params.get("bootstrap"), timeout_s=ASKED_S) as admin:
            found = [group.group_id for group in await admin.list_groups() if group.group_id.startswith(incomplete)]
        return found[:OFFERED_MAX]

    return _answer(names())


def process_names(_ctx: typer.Context, incomplete: str) -> list[str]:
    """Processes of `regnum up`, as its folder remembers them."""
    from regnum_local.cluster import PLAN  # noqa: PLC0415
    from regnum_local.files import read_json  # noqa: PLC0415
    from regnum_local.plan import Plan  # noqa: PLC0415
    from regnum_local.profile import ProfileError, read_profile  # noqa: PLC0415

    try:
        profile = read_profile()
        plan = None if profile is None else read_json(profile.data_dir / PLAN)
        members = () if plan is None else Plan.from_json(plan).members
    except (ProfileError, KeyError, TypeError, ValueError, OSError):
        return []
    return [member.name for member in members if member.name.startswith(incomplete)]


def profile_names(_ctx: typer.Context, incomplete: str) -> list[str]:
    """Profiles by name."""
    from regnum_client.commands.profiles.choosing import known_profiles  # noqa: PLC0415

    try:
        names = known_profiles().profiles
    except CommandFailedError:
        return []
    return [name for name in names if name.startswith(incomplete)]


def _answer(names: Coroutine[Any, Any, list[str]]) -> list[str]:
    try:
        return run(names)
    except CommandFailedError:
        return []


NAMES: Final[Mapping[str, Callable[[typer.Context, str], list[str]]]] = MappingProxyType(
    {"topics": topic_names, "groups": group_names, "processes": process_names, "profiles": profile_names}
)
"""By kind; the line so far, and the begin of a name."""
