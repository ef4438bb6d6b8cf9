"""`nodes_now.json` of a run directory: what each node does at this moment, for whoever follows the run (`live/`).

In: the nodes' trials and phases. Out: the file, rewritten whole when one of them changed, and gone with the run. It is
not synced: nobody needs it after a power cut. All times of day are the driver's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from powerband.store import RunDir, open_private


class NodesNow:
    def __init__(self, run: RunDir) -> None:
        self._path = run.nodes_now
        self._told: Mapping[str, Any] | None = None

    def tell(self, nodes: Mapping[str, Mapping[str, Any]]) -> None:
        """Each node that runs trials, by name. While it runs one: its number as `trial`, `began_s`, `phase` and
        `phase_began_s`; once it is lost: why, as `lost`. `load_from`: the nodes that load its server, if others do.
        A disk that refuses it costs only the view."""
        if nodes == self._told:
            return
        self._told = nodes
        temporary = self._path.with_name(f".{self._path.name}.tmp")
        with suppress(OSError):
            with open_private(temporary, "w") as file:
                json.dump({"nodes": nodes}, file)
            temporary.replace(self._path)

    def close(self) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
