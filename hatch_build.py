"""Builds the engine with cargo and adds the binary to the wheel's scripts, so that one install brings both programs.

`POWERBAND_BUILT_ENGINE` names a binary that was built before, and `POWERBAND_WHEEL_PLATFORM` the machines that it runs
on (`manylinux_2_17_x86_64`), as `scripts/wheels.sh` sets them; without, cargo builds for this machine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_NEEDS = "Rust 1.88 or later (https://rustup.rs) and a C compiler"


class EngineBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """The engine among the scripts (`shared_scripts`): the way an editable and a normal install both get the binary."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        built = os.environ.get("POWERBAND_BUILT_ENGINE")
        engine = root / built if built else _build(root)
        if not engine.is_file():
            raise SystemExit(f"powerband: POWERBAND_BUILT_ENGINE names {engine}, and there is no file")
        platform = os.environ.get("POWERBAND_WHEEL_PLATFORM") or sysconfig.get_platform().replace("-", "_").replace(
            ".", "_"
        )
        build_data["shared_scripts"] = {str(engine): "powerband-engine"}
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False
        if version == "standard" and (commit := _said("git", "-C", root, "rev-parse", "--short=12", "HEAD")):
            kept = root / "target" / "commit"
            kept.parent.mkdir(exist_ok=True)
            kept.write_text(f"{commit}\n")
            build_data["force_include"][str(kept)] = "powerband/data/commit"


def _build(root: Path) -> Path:
    """The engine's binary, built by cargo."""
    if shutil.which("cargo") is None:
        raise SystemExit(f"powerband: cargo was not found on PATH; the engine is written in Rust: it needs {_NEEDS}")
    # Given explicitly: a target-dir in the user's own cargo configuration would put the binary elsewhere.
    target = root / (os.environ.get("CARGO_TARGET_DIR") or "target")
    command = ["cargo", "build", "--release", "--locked", "--package", "powerband-engine", "--target-dir", target]
    command.append("--message-format=json-render-diagnostics")
    done = subprocess.run(command, cwd=root, check=False, stdout=subprocess.PIPE)
    if done.returncode != 0:
        raise SystemExit(f"powerband: the engine was not built, see above: it needs {_NEEDS}; {_here()}")
    # As cargo says: a target in that configuration, too, has a folder of its own.
    built = [found for line in done.stdout.splitlines() if (found := json.loads(line).get("executable"))]
    if not built:
        raise SystemExit("powerband: cargo built the engine and did not say where")
    return Path(built[-1])


def _here() -> str:
    """Which Rust there is. A cargo that does not even say its version is rustup's, without a toolchain."""
    version = _said("cargo", "--version")
    return f"here is {version}" if version else "the cargo here does not run (rustup: `rustup default stable`)"


def _said(*command: str | Path) -> str:
    """The output of a command; empty where it failed or is not there."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
