"""The version of powerband; pyproject.toml must have the same."""

import subprocess
from pathlib import Path

__version__ = "0.1.0"


def commit() -> str | None:
    """The commit that this powerband was made from, in 12 digits; None if it is not known."""
    package = Path(__file__).parents[1]
    try:
        return (package / "data" / "commit").read_text().strip()  # written into a wheel
    except OSError:
        pass
    if not (package.parents[1] / ".git").exists():  # no checkout
        return None
    try:
        asked = ("git", "-C", str(package), "rev-parse", "--short=12", "HEAD")
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
