"""The steps of the release workflow that can run here run as they are written, for this machine's target."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
STEPS = YAML(typ="safe").load(ROOT / ".github/workflows/release.yml")["jobs"]["packages"]["steps"]
HOSTED = {"uv", "Rust for each target"}  # steps that set up a hosted machine
TAGGED = {"The tag names the version": {"GITHUB_REF_NAME": "v0.1.0"}}


@pytest.mark.e2e
@pytest.mark.table
def test_packages_are_made_and_answer_without_a_compiler(tmp_path: Path) -> None:
    """The packages are made from a clone of the commit, so they need nothing else."""
    tree = tmp_path / "tree"
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", tree], check=True)
    for folder in ("src/powerband/report/bundle", "subjects/socketcluster"):  # as after `npm ci` there
        (tree / folder / "node_modules").mkdir()
        (tree / folder / "node_modules/left.js").touch()
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "uv").symlink_to(shutil.which("uv") or ROOT / ".tools/bin/uv")
    environment = os.environ | {"PATH": f"{bin_folder}:{os.environ['PATH']}", "TARGETS": "x86_64-unknown-linux-gnu"}
    environment.pop("POWERBAND_ENGINE", None)
    for step in STEPS:
        if "run" not in step or step["name"] in HOSTED:
            continue
        script = step["run"].replace("/tmp/", f"{tmp_path}/").replace("cd /tmp", f"cd {tmp_path}")
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", script], check=False, cwd=tree, capture_output=True, text=True,
            env=environment | TAGGED.get(step["name"], {}), timeout=900,
        )  # fmt: skip
        assert done.returncode == 0, f"{step['name']}: {done.stdout}{done.stderr}"
        if "no compiler" in step["name"]:
            assert re.search(r"^Use threads=\d+: goodput", done.stdout, re.MULTILINE), done.stdout
    made = {path.name for path in (tree / "dist").iterdir()}
    (wheel,) = (name for name in made if name.endswith(".whl"))
    assert wheel.endswith("manylinux_2_17_x86_64.manylinux2014_x86_64.whl")
    assert {"SHA256SUMS", wheel.split("-py3")[0] + ".tar.gz"} <= made
    with zipfile.ZipFile(tree / "dist" / wheel) as package:
        names = package.namelist()
        assert "powerband/data/subjects/socketcluster/package.json" in names
        assert not any("node_modules" in name for name in names)
        head = subprocess.check_output(["git", "rev-parse", "--short=12", "HEAD"], cwd=tree, text=True)
        assert package.read("powerband/data/commit").decode() == head
