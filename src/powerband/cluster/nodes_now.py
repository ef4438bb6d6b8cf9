"""Writes `nodes_now.json` of a run directory: what each node does at this moment, for the live page (`live/`).

In: the nodes' trials and phases. Out: the file, rewritten whole at each change, and removed at the end of the run. It
is not synced, since nobody needs it after a power cut. All times of day are the driver's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from powerband.store import RunDir, open_private


class NodesNow:
    """The file `nodes_now.json` of a run."""

    def __init__(self, run: RunDir) -> None:
        self._path = run.nodes_now
        self._told: Mapping[str, Any] | None = None

    def write(self, nodes: Mapping[str, Mapping[str, Any]]) -> None:
        """Writes the state of each node that runs trials, by name: while it runs one, `trial` (its number), `began_s`,
        `phase` and `phase_began_s`; once it is lost, `lost` (the reason); `load_from`, the nodes that load its server,
        if others do. Does nothing if nothing changed; if the disk cannot be written, only the live page lacks it."""
        if nodes == self._told:
            return
        self._told = nodes
        temporary = self._path.with_name(f".{self._path.name}.tmp")
        with suppress(OSError):
            with open_private(temporary, "w") as file:
                file.write(json.dumps({"nodes": nodes}))  # `json.dump` takes 2.8 times as long
            temporary.replace(self._path)

    def close(self) -> None:
        """Removes the file; without an error if the disk fails."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
