"""Bounds on a share from so many of so many: how often starts fail that were seen to fail k times in n.

Clopper & Pearson 1934 ("The use of confidence or fiducial limits illustrated in the case of the binomial", Biometrika
26), one-sided: exact, so that they are wrong no more often than `error` for any share. Of none in n the bound is
1 - error^(1/n), about 3 / n at an error of 5 % (the rule of three: Hanley & Lippman-Hand 1983, JAMA 249).
"""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=4096)
def share_most(seen: int, of: int, error: float) -> float:
    """The true share is no larger, but for `error`; 1 where nothing was tried. 0 <= seen <= of, 0 < error < 1."""
    from scipy.special import betaincinv  # noqa: PLC0415

    return 1.0 if seen >= of else float(betaincinv(seen + 1, of - seen, 1 - error))


def share_least(seen: int, of: int, error: float) -> float:
    """The true share is no smaller, but for `error`."""
    return 1 - share_most(of - seen, of, error) if of else 0.0
