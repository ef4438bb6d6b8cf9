"""Names of settings that are short enough for a picture. An Analysis enters, text leaves; everywhere else a setting
goes by its id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from powerband.model.plan import Setting, format_level
from powerband.model.results import Analysis
from powerband.report.wording.words import short_id


@dataclass(frozen=True)
class ShortNames:
    """`heading`: what the parts of a name are, in their order (`core / max / queue`); `names`: by a setting's id."""

    heading: str
    names: Mapping[str, str]

    def of(self, setting: Setting) -> str:
        """Where the heading stands beside it."""
        return self.names.get(setting.id, setting.id)

    def row(self, setting: Setting) -> str:
        """Where it does not, unless the name has several parts: `threads=4` says more than `4`."""
        return self.of(setting) if self.has_parts else setting.id

    @property
    def has_parts(self) -> bool:
        return " / " in self.heading or self.heading == "change"

    @property
    def told(self) -> str:
        """A sentence for a note, where names have several parts."""
        return f" Names: {self.heading}." if " / " in self.heading else ""


def short_names(analysis: Analysis) -> ShortNames:
    """The levels of the factors that vary; where factors vary one at a time, what a setting changes of the baseline."""
    settings = [row.setting for row in analysis.settings]
    if not settings:
        return ShortNames("setting", {})
    base = settings[0]
    if analysis.changes:
        return ShortNames("change", {setting.id: short_id(setting, analysis) for setting in settings})
    varied = [
        place
        for place in range(len(base.levels))
        if len({format_level(setting.levels[place][1]) for setting in settings}) > 1
    ]
    if not varied:
        return ShortNames("setting", {setting.id: setting.id for setting in settings})
    heading = " / ".join(base.levels[place][0] for place in varied)
    return ShortNames(
        heading,
        {of.id: " / ".join(format_level(of.levels[place][1]) for place in varied) for of in settings},
    )
