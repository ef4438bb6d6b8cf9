"""The real JMeter, which powerband fetches by itself, runs a plan once."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from fakes.needs import need_jmeter


@dataclass(frozen=True)
class RealJMeter:
    home: Path
    java: Path

    def run(self, plan: Path, folder: Path, **properties: object) -> str:
        """Runs the plan in `folder`, where its log and its results stay; returns its output."""
        home = self.home
        command = [
            str(self.java), "-Xmx256m", "-cp", f"{home}/bin/ApacheJMeter.jar:{home}/lib/*:{home}/lib/ext/*",
            f"-Djmeter.home={home}", "-Duser.language=en", "org.apache.jmeter.NewDriver",
            "-n", "-t", str(plan), "-l", "results.jtl", "-j", "jmeter.log",
            *(f"-J{name}={value}" for name, value in properties.items()),
        ]  # fmt: skip
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout


def real_jmeter() -> RealJMeter:
    found = need_jmeter()
    return RealJMeter(found.home, found.jdk.java)
