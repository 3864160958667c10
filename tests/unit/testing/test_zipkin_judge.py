"""What a Zipkin answers is judged by what was sent: every span, a root as long as its trace, and the critical path."""

import json

import pytest
from regnum_insight.attribution.changes import change_of
from regnum_insight.reporting.zipkin import zipkin_of
from regnum_insight.spans.otlp import spans_of
from regnum_telemetry import conventions as names
from regnum_testing.change_traces import FullChangeTrace
from regnum_testing.otlp_lines import line
from regnum_testing.zipkin_judge import complaints, main, spans_of_zipkin


def answered(*, without: str = "", **root: int):
    """A change, what is sent of it, and what a Zipkin answers that loses spans of that name."""
    made = FullChangeTrace().documents()
    lines = (line(of, service=process.split()[0], instance=process.split()[1]) for process, of in made.items())
    sent = [span for one in lines for span in spans_of(json.loads(one))]
    change = change_of(sent)
    answer = json.loads(json.dumps(zipkin_of([change], {change.trace_id: sent})))
    for one in answer:
        if one["name"] == names.LEADERSHIP_CHANGE:
            one.update(root)
        one["name"] = one["name"].lower()
    return change, sent, spans_of_zipkin([one for one in answer if one["name"] != without.lower()])


def test_a_whole_trace_holds():
    assert list(complaints(*answered())) == []


@pytest.mark.parametrize(
    ("case", "complaint"),
    [
        ({"without": names.OUTAGE}, "came back"),
        ({"without": names.LEADERSHIP_CHANGE}, "0 roots"),
        ({"duration": 1000}, "the root lasts"),
        ({"without": names.OUTAGE}, "no broker, or no client"),
    ],
)
def test_what_is_lost_or_cut_is_said(case, complaint):
    assert any(complaint in one for one in complaints(*answered(**case)))


def test_without_a_jar_it_says_so(monkeypatch, capsys):
    monkeypatch.delenv("REGNUM_ZIPKIN_JAR", raising=False)
    monkeypatch.setattr("sys.argv", ["zipkin_judge"])
    assert main() == 0
    assert capsys.readouterr().out.startswith("skipped: no ")
