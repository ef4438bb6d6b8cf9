"""For any measured values a claim is judged without an error, its negation the opposite way, and its mirror image the
same way."""

from __future__ import annotations

import json
from dataclasses import asdict

from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from fakes.trials import experiment
from powerband.analyze.settings.claims import judge_claims
from powerband.model.experiment import Claim
from powerband.model.plan import Setting
from powerband.model.results import TrialResult

NEGATION = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
MIRROR = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
OPPOSITE = {"held": "refuted", "refuted": "held", "undecided": "undecided"}
METRICS = ("goodput", "p99", "error_rate", "threads", "run_wait_cores")
NAMES = ("goodput_per_s", "response_time_ns_p99", "error_rate", "threads_max", "run_wait_cores")

values = st.one_of(st.just(0.0), st.integers(0, 5).map(float), st.floats(0, 1e300))
trials = st.lists(
    st.tuples(st.sampled_from([1, 2]), st.integers(0, 3), st.dictionaries(st.sampled_from(NAMES), values)), max_size=12
)
sides = st.one_of(
    st.tuples(st.sampled_from(METRICS), st.sampled_from(["1", "2"])).map(lambda m: f"{m[0]}[threads={m[1]}]"),
    st.sampled_from(["0", "3", "50ms", "1%", "0 * 4"]),
)
terms = st.recursive(sides, lambda t: st.tuples(t, st.sampled_from("+-*/"), t).map(lambda p: f"({' '.join(p)})"))


@given(
    trials,
    st.sampled_from(METRICS).map(lambda metric: f"{metric}[threads=1]"),
    terms,
    st.sampled_from(list(NEGATION)),
)
def test_a_claim_and_its_negation_and_its_mirror(
    measured: list[tuple[int, int, dict[str, float]]], left: str, right: str, op: str
) -> None:
    texts = [f"{left} {op} {right}", f"{left} {NEGATION[op]} {right}"]
    if op in MIRROR:
        texts.append(f"{right} {MIRROR[op]} {left}")
    try:
        claims = tuple(Claim(id=str(number), says="", holds=text) for number, text in enumerate(texts))
    except ValidationError:  # its numbers have wrong units
        assume(False)
    results = [
        TrialResult(number, block, 1, Setting((("threads", threads),)), "measured", (), metrics)
        for number, (threads, block, metrics) in enumerate(measured)
    ]
    claim, negation, *mirror = judge_claims(experiment({"threads": (1, 2)}, claims=claims), results)
    assert negation.verdict == OPPOSITE[claim.verdict]
    assert all(other.verdict == claim.verdict for other in mirror)
    assert claim.sentence
    json.dumps([asdict(part) for part in claim.parts], allow_nan=False)
