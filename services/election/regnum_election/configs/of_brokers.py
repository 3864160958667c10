"""What brokers run with, as they say themselves: their flags, and what they have taken up of the store."""

import asyncio
from collections.abc import Iterable
from types import MappingProxyType
from typing import Final

from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.config_changes import Resource
from regnum_model.ids import BrokerId
from regnum_service.errors import RegnumError

from regnum_election.configs.entries import Entry, Source
from regnum_election.decisions.rejection import Rejection
from regnum_election.state.context import ControllerContext

ASK_S: Final = 5.0
"""How long a broker is waited for; all are asked at once."""

SOURCES: Final = MappingProxyType(
    {
        control_pb2.BROKER_SETTING_SOURCE_BROKER: Source.BROKER,
        control_pb2.BROKER_SETTING_SOURCE_CLUSTER: Source.CLUSTER,
        control_pb2.BROKER_SETTING_SOURCE_FLAG: Source.FLAG,
    }
)
"""Where values come from, in the words of brokers."""

Found = tuple[Resource, tuple[Entry, ...]] | Rejection


class BrokerSettings:
    """Asks brokers; one for each reign."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context

    async def ask(self, resources: Iterable[Resource]) -> dict[Resource, Found]:
        """The settings of each of some brokers, or why they are not known."""
        wanted = dict.fromkeys(resources)
        answers = await asyncio.gather(*map(self._ask, wanted))
        return dict(zip(wanted, answers, strict=True))

    async def _ask(self, resource: Resource) -> Found:
        broker = self._context.picture.brokers.get(BrokerId(int(resource.name)))
        if broker is None:
            return Rejection(
                code=errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE,
                message=f"{resource} is not registered, and only it knows what it was started with; what was set for it"
                f" stands in {resource.path}",
            )
        try:
            async with asyncio.timeout(ASK_S):
                answer = await self._context.dispatch.settings_of(broker, timeout_s=ASK_S)
        except TimeoutError:
            return Rejection(
                code=errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, message=f"{resource} does not answer; try again"
            )
        except RegnumError as error:
            return Rejection(code=error.code, message=f"{resource}: {error.message}")
        return resource, tuple(map(_entry, answer.settings))


def _entry(setting: control_pb2.BrokerSetting) -> Entry:
    return Entry(
        name=setting.name,
        value="" if setting.sensitive else setting.value,
        source=SOURCES.get(setting.source, Source.DEFAULT),
        documentation=setting.documentation,
        valid_values=setting.valid_values,
        read_only=setting.read_only,
        sensitive=setting.sensitive,
    )
