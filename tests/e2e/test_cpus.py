"""The server runs on the CPUs that the answer names."""

from __future__ import annotations
