"""Names of settings that are short enough for a chart, and of the values of a parameter. In: an Analysis, values. Out:
text. Everywhere else a setting is shown by its id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from powerband.model.plan import Level, Setting, format_level
from powerband.model.results import Analysis
from powerband.report.wording.words import short_id


@dataclass(frozen=True)
class ShortNames:
    """`heading`: the meaning of the parts of a name, in order (`core / max / queue`); `names`: by a setting's id."""

    heading: str
    names: Mapping[str, str]

    def of(self, setting: Setting) -> str:
        """The short name, for use next to the heading."""
        return self.names.get(setting.id, setting.id)

    def row(self, setting: Setting) -> str:
        """The name for use without the heading: the id, unless the name has several parts, since `threads=4` says more
        than `4`."""
        return self.of(setting) if self.has_parts else setting.id

    @property
    def has_parts(self) -> bool:
        """True if a name is made of the values of several parameters, or of a change, so that it stands alone."""
        return " / " in self.heading or self.heading == "change"

    @property
    def note(self) -> str:
        """A sentence that explains the names, to be added to a chart's note; empty unless names have several parts."""
        return f" Names: {self.heading}." if " / " in self.heading else ""


def level_words(level: Level) -> str:
    """A value of a parameter in a cell or a label of its own: as a user would type it, an empty one as `""`."""
    return format_level(level) or '""'


def short_names(analysis: Analysis) -> ShortNames:
    """Names made of the values of the parameters that vary; if parameters vary one at a time, the change from the
    baseline."""
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
        {of.id: " / ".join(level_words(of.levels[place][1]) for place in varied) for of in settings},
    )
