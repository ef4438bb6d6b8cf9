"""Builds the engine with cargo and adds the binary to the wheel's scripts, so that one install brings both programs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class EngineBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """`cargo build --release`, then `shared_scripts`: the way an editable and a normal install both get the binary."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        if shutil.which("cargo") is None:
            raise SystemExit(
                "powerband: cargo was not found on PATH; the engine is written in Rust: install it from https://rustup.rs"
            )
        subprocess.run(
            ["cargo", "build", "--release", "--locked", "--package", "powerband-engine"], cwd=root, check=True
        )
        target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
        build_data["shared_scripts"] = {str(target / "release" / "powerband-engine"): "powerband-engine"}
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        build_data["pure_python"] = False
