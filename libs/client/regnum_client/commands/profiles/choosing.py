"""Which cluster a command line means by ``--profile``, or by the profile that is in use."""

import os

from regnum_local.named_profiles import LOCAL, NamedProfile, NamedProfiles, put_into, read_profiles
from regnum_local.profile import ProfileError

from regnum_client.commands.invocation import CommandFailedError, Failure


def choose(name: str | None) -> None:
    """Have the command go to a profile: the one that is named, else the one in use.

    Raises CommandFailedError for a name that is not there, and a file that cannot be read.
    """
    profiles = known_profiles()
    profile = profile_named(profiles, profiles.current if name is None else name)
    if profile is not None:
        put_into(os.environ, profile)


def known_profiles() -> NamedProfiles:
    """All of them. Raises CommandFailedError."""
    try:
        return read_profiles()
    except ProfileError as error:
        raise CommandFailedError(
            Failure(code="PROFILE_UNREADABLE", message=str(error), exit_status=1, metadata={})
        ) from error


def profile_named(profiles: NamedProfiles, name: str) -> NamedProfile | None:
    """The profile of that name; None: it is LOCAL. Raises CommandFailedError (exit status 3)."""
    if name == LOCAL:
        return None
    if name not in profiles.profiles:
        from regnum_model.spelling import did_you_mean  # noqa: PLC0415 - names are mostly right

        meant = did_you_mean(name, [*profiles.profiles, LOCAL])
        raise CommandFailedError(
            Failure(
                code="PROFILE_NOT_FOUND",
                message=f"there is no profile {name!r}{meant or ';'} `regnum profile list` shows those that there are, "
                "`regnum profile create` makes one",
                exit_status=3,
                metadata={"profile": name},
            )
        )
    return profiles.profiles[name]
