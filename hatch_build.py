"""Builds the engine with cargo and adds the binary to the wheel's scripts, so that one install brings both programs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_NEEDS = "Rust 1.88 or later (https://rustup.rs) and a C compiler"


class EngineBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """`cargo build --release`, then `shared_scripts`: the way an editable and a normal install both get the binary."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        if shutil.which("cargo") is None:
            raise SystemExit(
                f"powerband: cargo was not found on PATH; the engine is written in Rust: it needs {_NEEDS}"
            )
        # Given explicitly: a target-dir in the user's own cargo configuration would put the binary elsewhere.
        target = root / (os.environ.get("CARGO_TARGET_DIR") or "target")
        command = ["cargo", "build", "--release", "--locked", "--package", "powerband-engine", "--target-dir", target]
        if subprocess.run(command, cwd=root, check=False).returncode != 0:
            raise SystemExit(f"powerband: the engine was not built, see above: it needs {_NEEDS}; here is {_cargo()}")
        build_data["shared_scripts"] = {str(target / "release" / "powerband-engine"): "powerband-engine"}
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        build_data["pure_python"] = False


def _cargo() -> str:
    return subprocess.run(["cargo", "--version"], capture_output=True, text=True, check=False).stdout.strip()
