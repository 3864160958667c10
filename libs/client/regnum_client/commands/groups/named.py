"""A group by its name; where there is none, the name that may have been meant."""

import asyncio
import contextlib
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_model.spelling import did_you_mean
from regnum_service.errors import RegnumError

from regnum_client.admin.admin import Admin
from regnum_client.admin.groups.views import GroupDescription

LOOKING_S: Final = 1.0
"""So long at most names are looked for that are alike; the group is not there either way."""


async def group_named(admin: Admin, name: str) -> GroupDescription:
    """A group and its members. Raises GROUP_ID_NOT_FOUND, with the name of a group that is alike."""
    try:
        return await admin.describe_group(name)
    except RegnumError as error:
        if error.code != errors_pb2.ERROR_CODE_GROUP_ID_NOT_FOUND:
            raise
    names: list[str] = []
    # What is said of the group stands, whether or not others can be listed.
    with contextlib.suppress(RegnumError, TimeoutError):
        async with asyncio.timeout(LOOKING_S):
            names = [one.group_id for one in await admin.list_groups()]
    raise RegnumError(
        errors_pb2.ERROR_CODE_GROUP_ID_NOT_FOUND,
        f"there is no group {name!r}{did_you_mean(name, names) or ';'} `regnum groups list` shows those that there are",
        metadata={"group": name},
    )
