"""Why a change that somebody asked for is not made: the word that decisions here and in the libraries share."""

from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_model.rejection import Rejection

__all__ = ["Rejection", "node_damaged"]

NAME_MAX: Final = 249
"""Characters of a topic name; callers give longer ones."""


def node_damaged(name: str) -> Rejection:
    """A topic is there, perhaps with records, and nothing can be done about it before a person has mended its node."""
    return Rejection(
        code=errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS,
        message=f"topic {name[:NAME_MAX]} exists, but its node in the store is damaged: see `regnum status`",
    )
