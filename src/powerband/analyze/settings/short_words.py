"""Shortens sentences on settings that differ from a baseline in one factor each: they are called by what they change.

In: an `Analysis` whose sentences call every setting by its id. Out: the same with `parallelism=1` or `the baseline` in
place of ids; nothing changes if factors are crossed. Its tables and charts do likewise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from powerband.model.plan import Setting
from powerband.model.results import Analysis

BASELINE = "the baseline"


def with_short_names(analysis: Analysis) -> Analysis:
    """Returns the analysis with short names in the sentences of its answer, warnings, claims and findings. The first
    name in the answer is explained in brackets."""
    if not analysis.changes:
        return analysis
    words, sentences = _Words.of(analysis), analysis.answer.sentences
    return replace(
        analysis,
        answer=replace(
            analysis.answer, sentences=(*map(words.introduced, sentences[:1]), *map(words.short, sentences[1:]))
        ),
        warnings=tuple(map(words.short, analysis.warnings)),
        claims=tuple(replace(claim, sentence=words.short(claim.sentence)) for claim in analysis.claims),
        found=tuple(map(words.short, analysis.found)),
    )


@dataclass(frozen=True)
class _Words:
    """The words that stand for ids. `names`: the short name by a setting's id; empty by ` at debug_log=false,...`, the
    baseline's levels but one, which say nothing since no others are measured. `ids`: finds any of these texts."""

    names: Mapping[str, str]
    ids: re.Pattern[str]
    baseline: str

    @classmethod
    def of(cls, analysis: Analysis) -> _Words:
        change = analysis.changes[0]
        levels = change.setting.as_dict() | {change.factor: change.baseline}
        baseline = Setting(tuple(levels.items())).id
        but_one = (Setting(tuple(item for item in levels.items() if item[0] != left_out)) for left_out in levels)
        names = {f" at {rest.id}": "" for rest in but_one if rest.levels}
        names |= {change.setting.id: change.name for change in analysis.changes}
        names[baseline] = BASELINE
        longest_first = "|".join(re.escape(text) for text in sorted(names, key=len, reverse=True))
        return cls(names, re.compile(rf"({longest_first})(?!\w|\.\d|,\w+=)"), baseline)

    def short(self, text: str) -> str:
        return self.ids.sub(lambda found: self.names[found[0]], text)

    def introduced(self, text: str) -> str:
        """The text shortened, with the meaning of the short name in brackets after the first setting that it names."""
        found = next((found for found in self.ids.finditer(text) if self.names[found[0]]), None)
        if found is None:
            return text
        name = self.names[found[0]]
        meant = self.baseline if name == BASELINE else "all else as in the baseline"
        return f"{text[: found.start()]}{name} ({meant}){self.short(text[found.end() :])}"
