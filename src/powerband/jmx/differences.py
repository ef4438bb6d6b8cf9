"""Differences between a plan in JMeter and its conversion, as sentences for the file's comments. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle

from powerband.jmx.converted import ConvertedLoad, ConvertedStep
from powerband.jmx.plan_findings import Findings
from powerband.jmx.tree import Element


def note_requests(
    findings: Findings,
    steps: Sequence[ConvertedStep],
    elements: Sequence[Element],
    *,
    goes_on: bool,
    open_load: bool,
) -> None:
    """Adds notes on the differences of requests. `elements`: the requests of the plan, which the steps repeat for each
    row of data. `goes_on`: JMeter continues with the next request after an error. `open_load`: a timer holds a rate."""
    findings.note(
        "JMeter also sends its own User-Agent and Connection: keep-alive; powerband sends only what stands here."
    )
    for step, element in zip(steps, cycle(elements), strict=False):
        for text in _of_answer(step):
            findings.note(text, element)
    if len(steps) > 1 and open_load:
        findings.note(
            "After a failed request the rest of that pass is not sent, so that fewer are offered; JMeter keeps its "
            "rate."
        )
    elif len(steps) > 1 and goes_on:
        findings.note(
            "After a failed request JMeter goes on with the next; a user of powerband begins the scenario anew."
        )
    if any(step.pause.high_ns for step in steps):
        findings.note(
            "JMeter pauses before a request, powerband after one: each pause stands at the step before it. The first "
            "request of each user is sent without one."
        )
    if any(step.request.timeout_ms for step in steps):
        findings.note(
            "JMeter's response timeout begins anew with each part of an answer, powerband's is of the whole answer."
        )


def _of_answer(step: ConvertedStep) -> Iterator[str]:
    """Yields how a redirect or a compressed answer to one request is judged otherwise than in JMeter."""
    texts, statuses = step.check.contains, step.check.statuses
    if step.request.follows and (texts or (statuses and not any(300 <= status < 400 for status in statuses))):
        yield (
            "JMeter would follow a redirect and test the page behind it; powerband tests the redirect itself, so that "
            "it fails: write the request of that page as a step of its own, and check for 302 here."
        )
    elif step.request.follows:
        yield (
            "JMeter would follow a redirect with another request; powerband counts the 3xx as right and goes on "
            "(check: {status: 200} makes it an error)."
        )
    asked = {value.lower() for name, value in step.request.headers if name.lower() == "accept-encoding"}
    if texts and asked - {"identity", ""}:
        yield (
            "JMeter unpacks a compressed answer before it looks for a text; powerband looks in the bytes that arrive: "
            "take Accept-Encoding out, or the check."
        )


def note_load(findings: Findings, load: ConvertedLoad, *, secure: bool) -> None:
    """Adds notes on the differences of rate, connections, end and timeouts. `secure`: requests go over TLS."""
    if load.rate_per_s is not None:
        findings.note(
            "A throughput timer slows threads down to a rate, and when all of them are busy JMeter sends less. Here "
            f"the scenario begins at that rate, whatever the answers take, and what finds {load.users} of them "
            "in flight is dropped and counted. Later steps follow at once, or after a pause."
        )
    if secure and not load.keep_alive:
        findings.note(
            "JMeter's threads resume their TLS sessions, where the server lets them; powerband makes a full handshake "
            "for each connection, which costs the server more CPU."
        )
    if load.duration_ns is None and load.requests_per_user is None:
        findings.note("The plan runs until somebody stops it; the duration here is powerband's default.")
    elif load.duration_ns is None:
        findings.note(
            "The plan ends when all users have sent their requests; the duration here is the longest this may take."
        )
    if load.timeout_ns is None:
        findings.note("JMeter waits for an answer without end, powerband for 30 s (load.timeout).")
    if load.connect_timeout_ns is None:
        findings.note(
            "JMeter waits for a connection as long as the system does, powerband for 5 s (load.connect_timeout)."
        )


def note_rows(findings: Findings, rows: int, *, own: bool) -> None:
    """Adds a note on the rows of data. `own`: each thread of JMeter also goes through the rows one by one."""
    if not own:
        findings.note(
            "All threads of JMeter share the rows of the data; here each user goes through all of them by itself."
        )
    if rows > 1:
        findings.note(
            "After a failed request a user begins with the first row of the data again; JMeter takes the next row."
        )
