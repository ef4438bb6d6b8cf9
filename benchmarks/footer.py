"""What the footer of a table says: where and of which commit it was measured, and how much of the CPUs the hypervisor
took meanwhile."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path

from powerband.processes.host import host_facts

_HASH = ("rev-parse", "--short", "HEAD")
_CHANGES = ("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs")
ROOT = Path(__file__).resolve().parent.parent


def machine() -> str:
    """The CPU's model, the number of CPUs, the kernel."""
    model = host_facts()["cpu"]["model"] or platform.machine()
    return f"{model}, {os.cpu_count()} CPUs, Linux {platform.release()}"


def commit(root: Path = ROOT) -> str:
    """The short hash, with a `+` if a file known to git has changed since, except for pages and their data, which a
    benchmark writes; `unknown` outside of a checkout."""
    try:
        short, changed = (
            subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True).stdout.strip()
            for words in (_HASH, _CHANGES)
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return short + "+" * bool(changed)


def stolen(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """The share of all CPUs' time between two readings of `cpu_times()` that the hypervisor gave to others."""
    grown = {name: after[name] - before[name] for name in before}
    return grown["steal"] / max(1.0, sum(grown.values()))
