"""Keeps the data that a page of docs/experiments quotes: `python -m scripts.keep RUN` writes
docs/experiments/data/NAME-DATE/.

In: the directory of a finished run. Out: `analysis.json.gz` (the analysis as `--format json` has it, without the run's
path), `experiment.yaml` (every default filled in), `host.json` (the machine without its name, the command without the
place of the runs, the commit). `scripts/reference.py` writes `block` of it between two marks of the
experiment's page, and a test holds the page to it. Not kept: events and samples, which are a thousand times as large.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from powerband.base.arithmetic import Arithmetic, Number
from powerband.base.units import capital, format_value, percent, plural, significant
from powerband.files.experiment_file import load_experiment
from powerband.model.claim_expression import Reference, Term, parse_claim
from powerband.model.host_facts import host_fact
from powerband.model.metrics import metric_words
from powerband.model.plan import format_level
from powerband.model.results import Analysis, ClaimVerdict, Estimate
from powerband.report.wording.numbers import format_estimate, format_interval
from powerband.search.session import analyse_run
from powerband.store import RunDir, read_host

ROOT = Path(__file__).parents[1]
DATA = ROOT / "docs" / "experiments" / "data"
BYTES_MAX = 256 * 1024  # of all files of a folder
_CWD = re.compile(r"^( +cwd: ).*$", re.MULTILINE)  # a server's working folder; ours run in any folder
DROPPED = ("hostname", "uptime_s")
_UNIT = re.compile(r"(/s| %| times| points)$")
_LEFT_OUT = re.compile(  # the table has the interval, the line above it the CPUs
    r"\d+ ?% interval [^)]*?, (?=\d+ (?:trials|fresh starts)\))| \(the load took [^)]*\)"
    r"|, on all \d+ CPUs of this machine"
)


class NotKeptError(Exception):
    """Raised for a run that is not kept; the message says why."""


@dataclass(frozen=True)
class Kept:
    """A folder of docs/experiments/data that was read."""

    folder: Path
    analysis: Mapping[str, Any]
    host: Mapping[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Kept:
        analysis = json.loads(gzip.decompress((folder / "analysis.json.gz").read_bytes()))
        return cls(folder, analysis, read_host(folder / "host.json"))

    @property
    def date(self) -> str:
        """The day on which the run began, in UTC."""
        return _date(self.host)

    @property
    def profile(self) -> str | None:
        return load_experiment(self.folder / "experiment.yaml").profile

    @property
    def command(self) -> str:
        return " ".join(self.host["command"])


def all_kept() -> list[Kept]:
    """Every folder of docs/experiments/data, by name."""
    return [Kept.read(folder) for folder in sorted(DATA.iterdir())] if DATA.is_dir() else []


def keep(run: RunDir, commit: str, into: Path = DATA) -> Path:
    """Writes the kept data of a run, and returns the folder. Raises NotKeptError for a run without a valid trial, or
    with files that are too large or that name this machine or a place on it."""
    experiment = load_experiment(run.experiment)
    analysis = analyse_run(experiment, run)
    if not any(row.trials for row in analysis.settings):
        raise NotKeptError(f"{run.path}: it has no valid trial")
    document = _document(analysis)
    texts = anywhere(run, commit=commit)
    check_places(run, texts | {"analysis.json": document})
    packed = gzip.compress(document.encode(), 9, mtime=0)
    if (size := len(packed) + sum(map(len, texts.values()))) > BYTES_MAX:
        raise NotKeptError(f"{run.path}: {size / 1024:.0f} KiB, and {BYTES_MAX / 1024:.0f} KiB are the most")
    profile = f"-{experiment.profile}" if experiment.profile else ""
    folder = into / f"{experiment.name}{profile}-{_date(read_host(run.host))}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "analysis.json.gz").write_bytes(packed)
    return folder


def anywhere(run: RunDir, **facts: str) -> dict[str, str]:
    """The texts of `experiment.yaml` and `host.json` without the machine's name and the places on it; `facts` take the
    place of the machine's own. Raises NotKeptError if the subject is in another checkout."""
    experiment = _CWD.sub(r"\1.", run.experiment.read_text()).replace(f"{ROOT}/", "")
    if found := re.search(r"^ +folder: (/.*)$", experiment, re.MULTILINE):
        raise NotKeptError(f"{run.path}: its subject is in {found[1]}: keep it from the checkout that it was run from")
    host = {name: fact for name, fact in read_host(run.host).items() if name not in DROPPED}
    host |= {"command": _command(host.get("command", [])), **facts}
    host_json = json.dumps(host, indent=1, ensure_ascii=False).replace(f"{ROOT}/", "")
    return {"experiment.yaml": experiment, "host.json": host_json + "\n"}


def check_places(run: RunDir, texts: Mapping[str, str]) -> None:
    """Raises NotKeptError if a text, by the name of its file, tells of this machine's name or of a place on it."""
    told = [str(run.path.resolve().parent), str(ROOT), f"{Path.home()}/", "/tmp/"]
    if name := read_host(run.host).get("hostname"):
        told.append(f'"{name}"')
    for file, text in texts.items():
        if found := [word for word in told if word in text]:
            raise NotKeptError(f"{run.path}: its {file} tells of {found[0]}, which is of this machine alone")


def block(kept: Kept) -> str:
    """The block of a page that shows the run, its answer, the settings and the claims, all of it from the data."""
    found, host = kept.analysis, kept.host
    cpus = host_fact(host, "CPUs allowed")
    told = [
        f"`{kept.command.replace(' --no-progress', '')}` on {kept.date}",
        f"{host_fact(host, 'CPU')}, {len(cpus) if isinstance(cpus, list) else '?'} CPUs",
        f"{_valid_of(found)} of {plural(len(found['trials']), 'trial')} valid",
    ]
    parts = [
        f"{'; '.join(told)}. [Its data](data/{kept.folder.name}).",
        f"**{_LEFT_OUT.sub('', _first_sentence(found))}**",
        _table(*_settings(found)),
    ]
    if found["claims"]:
        parts.append(_table(*claim_rows(_as_worded_now(kept))))
    return "\n\n".join(parts)


def short_row(kept: Kept) -> tuple[str, str]:
    """The run as a row of a table: its experiment and data, and how many of its trials were valid."""
    found = kept.analysis
    return f"[`{found['name']}`](data/{kept.folder.name})", f"{_valid_of(found)} of {len(found['trials'])}"


def _first_sentence(found: Mapping[str, Any]) -> str:
    """The answer's first sentence, with the present words for the objective: older data have its bare name there."""
    metric, told = found["objective"], found["answer"]["sentences"][0]
    bare, words = metric.removesuffix("_per_s").replace("_ns_", " ").replace("_", " "), metric_words(metric)
    return str(told).replace(bare, words).replace(capital(bare), capital(words))


def mark(kept: Kept) -> str:
    """The name of the two marks around the run's block on the page."""
    return f"kept {kept.folder.name}"


def _settings(found: Mapping[str, Any]) -> tuple[Sequence[str], list[Sequence[str]]]:
    objective = found["objective"]
    interval = f"{percent(found['confidence'])} interval"
    changed = {each["setting"]["id"]: f"{each['factor']}={format_level(each['level'])}" for each in found["changes"]}
    rows = []
    for row in found["settings"]:
        estimate = _estimate(row["estimates"].get(objective))
        figures = format_estimate(estimate, objective), format_interval(estimate, objective)
        name = changed.get(row["setting"]["id"], "baseline") if changed else row["setting"]["id"]
        verdict = "leader" if row["setting"] == found["answer"]["leader"] else row["verdict"]
        verdict = "violates the SLO" if row["infeasible_because"] else verdict
        rows.append((f"`{name}`", *figures, verdict))
    return ("setting", metric_words(objective), interval, "verdict"), rows


def _as_worded_now(kept: Kept) -> list[Mapping[str, Any]]:
    """The claims of a run; each whose condition the experiment still has, in the words that it has for it now."""
    file = ROOT / "experiments" / f"{kept.analysis['name']}.yaml"
    claims = load_experiment(file, kept.profile).claims if file.is_file() else ()
    now = {claim.holds: claim.says for claim in claims}
    return [{**each, "says": now.get(each["holds"], each["says"])} for each in kept.analysis["claims"]]


def claim_rows(claims: Sequence[Mapping[str, Any]]) -> tuple[Sequence[str], list[Sequence[str]]]:
    """The headings and rows of the table of claims. The column of published figures is omitted if there are none."""
    rows = [
        (each["says"].rstrip("."), each["published"] or "", ClaimVerdict(each["verdict"]).words, _found(each))
        for each in claims
    ]
    heads = ("claim", "published", "verdict", "measured")
    shown = [at for at in range(len(heads)) if at != 1 or any(row[1] for row in rows)]
    return [heads[at] for at in shown], [[row[at] for at in shown] for row in rows]


def _found(claim: Mapping[str, Any]) -> str:
    """Words the figures of the first comparison that decides a claim. If the claim makes several comparisons, this adds
    which values are compared, or at which setting."""
    parts = claim["parts"]
    deciding = [part for part in parts if part["verdict"] == claim["verdict"]]
    first = deciding[0]
    words = _figures(first)
    if len({part["comparison"] for part in parts}) > 1:
        words += _values(first["comparison"])
    if len({part["where"] for part in parts}) > 1:
        words += f" at {first['where']}"
    if len(parts) > 1:
        count = "all" if len(deciding) == len(parts) else f"{len(deciding)} of"
        words = f"{count} {len(parts)}; {words}"
    return words


def _figures(part: Mapping[str, Any]) -> str:
    """Words the measured figure of a comparison, with the interval that the claim was judged by. A comparison with a
    number gives the metric itself; one of two metrics gives their ratio, without the numbers by which they are
    multiplied; one of two shares gives the difference of both sides."""
    comparison = parse_claim(part["comparison"]).comparisons[0]
    (left, left_factor), (right, right_factor) = map(_scaled, (comparison.left, comparison.right))
    sentence = str(part["sentence"]).partition(". The interval includes both")[0].rstrip(".")
    if part["interval"] is None or not isinstance(left, Reference):
        return sentence
    ends = [part["interval"][name] for name in ("value", "low", "high")]
    in_ratio = part["scale"] == "ratio"
    if isinstance(right, Number):
        lefts = [part["right"] * end if in_ratio else part["right"] + end for end in ends]
        found = [_value(side / left_factor, part["unit"]) for side in lefts]
    elif in_ratio and isinstance(right, Reference):
        found = [f"{_three(end * right_factor / left_factor)} times" for end in ends]
    elif not in_ratio and part["unit"] == "ratio":
        found = [f"{_three(100 * end)} points".replace("-", "−") for end in ends]
    else:
        return sentence
    if ends[1] == ends[2]:
        return f"{found[0]} in each of {part['blocks']} rounds"
    return f"{found[0]} ({re.sub(_UNIT, '', found[1])} to {re.sub(_UNIT, '', found[2])})"


def _values(text: str) -> str:
    """Words the values in which the two settings of a comparison differ, left side first; empty for other
    comparisons."""
    references = parse_claim(text).comparisons[0].references
    if len(references) != 2:
        return ""
    left, right = (dict(reference.levels) for reference in references)
    return "".join(f", {name}={level} against {right[name]}" for name, level in left.items() if level != right[name])


def _scaled(term: Term) -> tuple[Term, float]:
    """A side of a comparison without the number by which it is multiplied or divided, and the factor."""
    match term:
        case Arithmetic("*", Number(factor), inner) | Arithmetic("*", inner, Number(factor)):
            return inner, factor
        case Arithmetic("/", inner, Number(factor)):
            return inner, 1 / factor
    return term, 1.0


def _three(value: float) -> str:
    """Words a value with three digits, also just below a power of ten."""
    return significant(float(f"{value:.3g}"))


def _value(value: float, unit: str) -> str:
    """Words a value with its unit, to three digits; whole counts have no decimals."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if unit == "count" and rounded.is_integer() else format_value(rounded, unit)


def _estimate(told: Mapping[str, Any] | None) -> Estimate | None:
    return None if told is None else Estimate(**told)


def _valid_of(found: Mapping[str, Any]) -> int:
    return sum(trial["status"] == "measured" and not _fatal(trial) for trial in found["trials"])


def _fatal(trial: Mapping[str, Any]) -> bool:
    return any(problem["fatal"] for problem in trial["problems"])


def _document(analysis: Analysis) -> str:
    return json.dumps(analysis.to_json(), separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _date(host: Mapping[str, Any]) -> str:
    return datetime.fromtimestamp(host["wall_s"], UTC).date().isoformat()


def _command(typed: Sequence[str]) -> list[str]:
    """The command as a reader would type it, without the folder of the runs."""
    arguments = list(map(str, typed[1:]))
    if "--runs" in arguments:
        at = arguments.index("--runs")
        del arguments[at : at + 2]
    return ["powerband", *arguments]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head, *lines = (f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |" for cells in (heads, *rows))
    return "\n".join((head, "|" + "---|" * len(heads), *lines))


def commit_of(run: RunDir, repository: Path = ROOT) -> str:
    """The commit that the run was made with. Raises NotKeptError if files were changed then, or if the repository has
    no such commit."""
    commit = str(read_host(run.host).get("commit"))
    if commit.endswith("-dirty"):
        raise NotKeptError(f"{run.path}: it was made with changed files: commit them, and run it again")
    asked = ("git", "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    done = subprocess.run(asked, check=False, cwd=repository, capture_output=True, text=True)
    if done.returncode:
        raise NotKeptError(f"{run.path}: it was made with no commit of {repository} ({commit}): run it again there")
    return done.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description="Keeps the data of a run for the pages of docs/experiments.")
    parser.add_argument("run", type=Path, help="directory of a finished run, made with a commit of this repository")
    try:
        run = RunDir(parser.parse_args().run)
        folder = keep(run, commit_of(run))
    except NotKeptError as reason:
        sys.exit(str(reason))
    sys.stderr.write(f"kept: {folder.relative_to(ROOT)}; next: its marks on the page, and `make reference`\n")


if __name__ == "__main__":
    main()
