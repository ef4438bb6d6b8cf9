"""A smoke test bears a run without a valid trial only where the machine or a late load engine is to blame, never where
the server answered wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import pytest

from fakes.smoke import LATE, exit_code


@pytest.mark.parametrize(
    ("codes", "foreign_cores", "spoilt_by", "borne"),
    [
        (["generator_lag", "generator_cpu"], 0.0, (), True),
        (["host_foreign"], 1.0, (), True),
        (["host_foreign"], 0.0, (), False),
        (["no_request_ended"], 1.0, (), True),
        (["no_request_ended"], 0.0, (), False),
        (["engine_stopped", "no_request_ended"], 0.0, (), True),
        (["engine_stopped", "no_request_ok"], 0.0, (), False),
        (["no_request_ok"], 1.0, (), False),
        (["invariant", "generator_lag"], 1.0, (), False),
        (["invariant"], 0.0, ("invariant",), True),
        (["died"], 0.0, (), False),
        ([], 1.0, (), False),
    ],
)
def test_a_run_without_a_valid_trial_is_borne_only_beside_others(
    codes: Sequence[str], foreign_cores: float, spoilt_by: Sequence[str], borne: bool
) -> None:
    problems = [{"code": code, "fatal": True} for code in codes]
    trial = {"problems": problems, "metrics": {"host_foreign_cores": foreign_cores}}
    analysis = {"answer": {"kind": "none_valid"}, "trials": [trial], "claims": []}
    with nullcontext() if borne else pytest.raises(AssertionError):
        assert exit_code(analysis, {*LATE, *spoilt_by}) == 5
