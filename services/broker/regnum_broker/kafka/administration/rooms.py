"""What answers a call, and what refuses it."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from regnum_service.errors import Code

from regnum_broker.kafka.context import Context

Answering: TypeAlias = Callable[[Any, Context], Awaitable[Any]]
Refusing: TypeAlias = Callable[[Any, Context, Code], Any]
Room: TypeAlias = tuple[Answering, Refusing]
"""For one call: what makes the answer, and what makes the answer that says why there is none."""
