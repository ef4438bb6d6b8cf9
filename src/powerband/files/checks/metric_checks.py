"""Checks of `measure`, and of the metrics that `objective`, `measure.invariants` and `claims` name."""

from __future__ import annotations

from collections.abc import Iterator

from powerband.base.errors import FileProblem, did_you_mean
from powerband.base.yaml_document import Node
from powerband.loads import kind_of
from powerband.model.claim_expression import certain, parse_claim
from powerband.model.experiment import Experiment
from powerband.model.metrics import METRICS, OWN, metric_words
from powerband.model.subjects import check_metrics_page, has_series

LONGEST_OF_BURST = "burst_response_time_ns_max"


def check_shares(root: Node) -> Iterator[FileProblem]:
    """Checks that no share of an objective or of regret is a bare 1, which may be meant in percent. Old runs may have
    one, and can be read."""
    shares = [root.at("objective", key) for key in ("margin", "allow_unserved", "allow_failed_starts")]
    for share in (*shares, root.at("design", "regret")):
        if str(share.value).strip() == "1":
            yield share.problem(f"1 is all: write 1%{' or 100%' if share in shares else ''}")


def check_measure(experiment: Experiment, root: Node) -> Iterator[FileProblem]:
    """Checks that the subject has what its own metrics are read from, and a page for a visitor if one is asked for."""
    defined, subject = experiment.measure.metrics, experiment.subject
    measure = root.at("measure")
    of_page = [name for name, own in experiment.measure.own_metrics().items() if not own.is_final]
    if of_page and not has_series(subject):
        yield measure.children["metrics"].key_problem(
            "the server has no metrics page: name it in subject.metrics_url, for example "
            "http://127.0.0.1:{port}/metrics; or give it {statsd_port} in its command or env, to send StatsD "
            "metrics to"
        )
    elif of_page:
        try:
            check_metrics_page(experiment)
        except ValueError as error:
            yield measure.children["metrics"].key_problem(str(error))
    if len(of_page) < len(defined) and subject.last_words is None:
        yield measure.children["metrics"].key_problem(
            "final(...) reads the server's last log lines, and nothing says which these are: set "
            "subject.last_words, for example '^final: '"
        )
    if experiment.measure.visitor and subject.visitor_url is None:
        yield measure.children["visitor"].key_problem(
            "the server has no page for a visitor: name it in subject.visitor_url; the page prints each visit"
        )


def check_page(experiment: Experiment, root: Node) -> Iterator[FileProblem]:
    """Checks that the series to be kept have a page that may and can be read. Old runs may ask for more, and can be
    read."""
    subject, series = experiment.subject, root.at("measure", "series")
    if experiment.measure.series and not has_series(subject):
        yield series.problem("the server has no metrics page to read them from: name it in subject.metrics_url")
    elif experiment.measure.series:
        try:
            check_metrics_page(experiment)
        except ValueError as error:
            yield series.problem(str(error))
    if experiment.scraped and (subject.metrics_url or "").startswith("https:"):
        yield root.at("subject", "metrics_url").problem(
            "metrics are read over http alone, not https: name an http:// address of that page"
        )


def check_direction(experiment: Experiment, root: Node) -> Iterator[FileProblem]:
    """Checks that an objective says whether more or less is better where that depends, and is not asked for at its
    worst. Old runs may have, and can be read."""
    objective, written = experiment.objective, root.at("objective")
    node, name = written.children.get("metric", written), written.at("metric").value or objective.metric
    known = METRICS.get(objective.metric)
    better = known and known.better
    if better is None and "direction" not in written.children:
        yield node.problem(
            f"say whether more or less is better: --minimise {name} or --maximise {name}, {{minimise: {name}}} or "
            f"{{maximise: {name}}} in a file"
        )
    if objective.is_capacity or better in (None, objective.direction):
        return
    words = metric_words(objective.metric)
    more, option = ("more" if better == "maximise" else "less"), f"--{better} {name}"
    yield node.problem(f"of {words} {more} is better: write {option}, or {{{better}: {name}}} in a file")


def check_conditions(experiment: Experiment, root: Node) -> Iterator[FileProblem]:
    """Checks that no condition wants a share above all of it. Old runs may, and can be read."""
    for node, constraints in (
        (root.at("objective", "subject_to"), experiment.objective.constraints),
        (root.at("measure", "invariants"), experiment.measure.invariants),
    ):
        for written, each in zip(node.items or (node,), constraints, strict=False):
            never = isinstance(written.value, str) and certain(each.metric, each.op, each.threshold) == "never"
            if never and not each.text.endswith("%"):
                yield written.problem(f"{each.text!r} holds never, since 1 is all: write {each.text}%")


def check_burst(experiment: Experiment, root: Node) -> Iterator[FileProblem]:
    """Checks that the longest response of the first moments is asked for only where it can be known. Old runs may ask
    for it, and can be read."""
    load = experiment.load
    if experiment.load_varies or experiment.objective.is_capacity:
        return
    if load.websocket is not None or not load.never_pauses:
        return
    for node, names in _named_metrics(experiment, root):
        if LONGEST_OF_BURST in names:
            yield node.problem(
                "users who never pause have requests under way when the first moments end, and how long these take is "
                f"not known: no trial has {LONGEST_OF_BURST}; ask for a percentile, such as burst_response_time_ns_p90"
            )


def check_metric_names(experiment: Experiment, root: Node) -> Iterator[FileProblem]:
    """Checks that every metric that the file names is defined, and that its load can have it."""
    defined, kind = experiment.measure.metrics, kind_of(experiment)
    for node, names in _named_metrics(experiment, root):
        for name in names:
            if name.startswith(OWN) and name not in defined:
                hint = did_you_mean(name, defined) if defined else "define it there"
                yield node.problem(f"measure.metrics defines no {name}; {hint}")
            elif not kind.has_metric(name):
                yield node.problem(f"{kind.why_missing(name)}")


def _named_metrics(experiment: Experiment, root: Node) -> Iterator[tuple[Node, list[str]]]:
    """Yields each place that names metrics, with their names."""
    objective = experiment.objective
    where = root.children.get("objective", root)
    yield where, [objective.metric, *(constraint.metric for constraint in objective.constraints)]
    if invariants := experiment.measure.invariants:
        yield root.children["measure"].children["invariants"], [constraint.metric for constraint in invariants]
    for node, claim in zip(root.at("claims").items, experiment.claims, strict=False):
        yield node.children["holds"], [reference.metric for reference in parse_claim(claim.holds).references]
