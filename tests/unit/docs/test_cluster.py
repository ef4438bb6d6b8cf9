"""The sentence about nodes on the page of clusters is one that the code says, but for its figures."""

from __future__ import annotations

import math
import re

import numpy as np

from fakes.pages import ROOT, blocks, tables
from fakes.trials import experiment
from powerband.analyze.settings.nodes import nodes_of
from powerband.model.results import TrialResult

MADE = experiment({"threads": (16, 32, 64)}, measure={"repeats": 12})
LAST = MADE.settings()[-1]
RATES = {16: 800.0, 32: 1140.0, 64: 1200.0}


def without_figures(text: str) -> str:
    return re.sub(r"\b\d+(\.\d+)? ", "N ", text)


def test_the_sentence_of_the_page_is_the_code_s() -> None:
    dice = np.random.default_rng(1)
    trials = []
    for block in range(12):
        node = "abcd"[block % 4]
        for setting in MADE.settings():
            threads = setting.as_dict()["threads"]
            assert isinstance(threads, int)
            rate = 1270.0 if (node, threads) == ("b", 32) else RATES[threads]
            metrics = {"goodput_per_s": rate * math.exp(dice.normal(0, 0.003))}
            trials.append(TrialResult(len(trials) + 1, block, 1, setting, "measured", (), metrics, node=node))
    found = nodes_of(MADE, trials, LAST)
    assert found is not None
    shown = blocks((ROOT / "docs" / "cluster.md").read_text())[0].text
    assert shown.splitlines() and [without_figures(line) for line in shown.splitlines()] == [
        without_figures(sentence) for sentence in found.sentences
    ]


def test_whoever_reaches_a_server_is_told() -> None:
    """Each server that listens on its node's address where other nodes load it, in the row that says so."""
    servers = {path.parent.name for path in ROOT.glob("subjects/*/subject.yaml") if "://{address}:" in path.read_text()}
    row = next(row for row in tables((ROOT / "SECURITY.md").read_text())[1] if "with `generators`" in row[1])
    assert servers and set(re.findall("`(.*?)`", row[0])) == servers
