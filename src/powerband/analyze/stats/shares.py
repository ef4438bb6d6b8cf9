"""Bounds on a share that was seen k times in n, e.g. of starts that fail.

Clopper & Pearson 1934 ("The use of confidence or fiducial limits illustrated in the case of the binomial", Biometrika
26), one-sided: exact, so that they are wrong no more often than `error` for any share. For none in n the bound is
1 - error^(1/n), about 3 / n at an error of 5 % (the rule of three: Hanley & Lippman-Hand 1983, JAMA 249). Neither
number need be whole: both are parameters of a beta distribution.
"""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=4096)
def share_most(seen: float, of: float, error: float) -> float:
    """The upper bound: the true share is larger with probability `error` at most; 1 if nothing was tried.
    0 <= seen <= of, 0 < error < 1."""
    from scipy.special import betaincinv  # noqa: PLC0415

    return 1.0 if seen >= of else float(betaincinv(seen + 1, of - seen, 1 - error))


def share_least(seen: float, of: float, error: float) -> float:
    """The lower bound: the true share is smaller with probability `error` at most; 0 if nothing was tried."""
    return 1 - share_most(of - seen, of, error) if of else 0.0
