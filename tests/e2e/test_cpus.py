"""The server has the CPUs that the answer speaks of."""

from __future__ import annotations
