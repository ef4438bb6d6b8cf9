"""Makes the footer of each table: when, where, by which command and of which commit it was measured, and how much of
the CPUs the hypervisor took meanwhile."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from powerband.processes.host import host_facts
from powerband.search.noise import cpu_times

ROOT = Path(__file__).resolve().parent.parent


def footer(command: str, repeats: str, before: Mapping[str, float], root: Path = ROOT) -> str:
    """The footer. `repeats`: their number and kind, as text; `before`: `cpu_times()` when the section began."""
    steal = stolen(before, cpu_times())
    return (
        f"*{time.strftime('%Y-%m-%d')}; {machine()}; `{command}`; commit {commit(root)}; {repeats}; "
        f"steal {steal:.1%} of the CPUs' time*"
    )


def machine() -> str:
    """The CPU's model, the number of CPUs, the kernel."""
    model = host_facts()["cpu"]["model"] or platform.machine()
    return f"{model}, {os.cpu_count()} CPUs, Linux {platform.release()}"


def commit(root: Path = ROOT) -> str:
    """The short hash, with a `+` if a file known to git has changed since; `unknown` outside of a checkout."""
    try:
        short, changed = (
            subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True).stdout.strip()
            for words in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return short + "+" * bool(changed)


def stolen(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """The share of all CPUs' time between two readings of `cpu_times()` that the hypervisor gave to others."""
    grown = {name: after[name] - before[name] for name in before}
    return grown["steal"] / max(1.0, sum(grown.values()))
