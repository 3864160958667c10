"""Which spans are recorded: those of the control plane always, those of data as OTEL_TRACES_SAMPLER says.

Changes of leadership are few, and each is looked for later: a ratio that keeps one of a hundred would lose 99 of a
hundred failovers. Of produce and fetch calls there may be thousands a second, and for those a ratio is meant. A caller
whose traceparent says that nothing is recorded speaks for its own calls only.
"""

from collections.abc import Sequence
from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, get_current_span
from opentelemetry.trace.span import TraceState
from opentelemetry.util.types import Attributes

from regnum_telemetry import conventions


class ControlPlaneSampler(Sampler):
    """Asks another sampler about data spans, and nobody about the others."""

    def __init__(self, data: Sampler) -> None:
        """Only assigns; ``data``: decides about data spans."""
        self._data: Final = data

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """See Sampler."""
        if name in conventions.DATA_SPANS or name.startswith(conventions.DATA_SERVICES):
            return self._data.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)
        above = get_current_span(parent_context).get_span_context()
        return SamplingResult(
            Decision.RECORD_AND_SAMPLE, attributes, above.trace_state if trace_state is None else trace_state
        )

    def get_description(self) -> str:
        """See Sampler."""
        return f"ControlPlane{{data:{self._data.get_description()}}}"
