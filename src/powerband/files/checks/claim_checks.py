"""Checks of `claims` and `published`: the settings that they name must exist."""

from __future__ import annotations

from collections.abc import Iterator

from powerband.base.errors import FileProblem, did_you_mean
from powerband.base.yaml_document import Node
from powerband.model.claim_expression import check_levels, parse_claim, parts_of, settings_of
from powerband.model.experiment import Experiment
from powerband.model.plan import Level, named_settings, one_at_a_time


def check_claims(root: Node) -> Iterator[FileProblem]:
    """Checks that claims have different ids, and name factors and levels that exist."""
    factors: dict[str, tuple[Level, ...]] = {
        name: tuple(level.value for level in factor.items) for name, factor in root.at("factors").children.items()
    }
    overridden = {name for name, factor in root.at("factors").children.items() if factor.key.startswith("--set ")}
    vary = root.at("design").children.get("vary", Node("all")).value
    ids: dict[object, Node] = {}
    for claim in root.at("claims").items:
        identity = claim.children.get("id")
        if identity is not None and isinstance(identity.value, str | int):
            if identity.value in ids:
                yield identity.problem(f"another claim has the id {identity.value} already")
            ids.setdefault(identity.value, identity)
        text = claim.children.get("holds")
        if text is None or not isinstance(text.value, str):
            continue
        try:
            claimed = parse_claim(text.value)
        except ValueError:
            continue  # the model reports it
        try:
            check_levels(claimed, factors)
        except ValueError as error:
            named = {name for reference in claimed.references for name, _ in reference.levels}
            cure = "; or leave the claims out with --set 'claims=[]'" if named & overridden else ""
            yield text.problem(f"{error}{cure}")
            continue
        one_varies = vary == "one-at-a-time" and all(factors.values())
        if one_varies and not settings_of(claimed, {each: each for each in one_at_a_time(factors)}):
            yield text.problem(
                "one parameter varies at a time, so that no setting has all these values: a claim is on the "
                "baseline, or on one changed parameter"
            )


def check_claim_settings(experiment: Experiment, root: Node) -> Iterator[FileProblem]:
    """Checks that each comparison of a claim is of different settings: the server may read none of the values that tell
    them apart."""
    kept = experiment.kept() if experiment.claims else {}
    for node, claim in zip(root.at("claims").items, experiment.claims, strict=False):
        if not parts_of(parse_claim(claim.holds), kept):
            yield node.children["holds"].problem(
                "this compares a setting with itself: the server does not read the values that tell the two apart"
            )


def check_claim_units(experiment: Experiment, root: Node) -> Iterator[FileProblem]:
    """Checks that numbers in claims have units of their metrics. Old runs may have others, and can be read."""
    for node, claim in zip(root.at("claims").items, experiment.claims, strict=False):
        try:
            parse_claim(claim.holds, strict=True)
        except ValueError as error:
            yield node.children["holds"].problem(str(error))


def check_published(experiment: Experiment, root: Node) -> Iterator[FileProblem]:
    """Checks that each published figure belongs to one setting, or to a size that this run does not have."""
    settings, kept = experiment.settings(), experiment.kept() if experiment.published else {}
    for node, published in zip(root.at("published").items, experiment.published, strict=False):
        for name in published.by:
            place = node.children["by"].children[name]
            factors = [word.partition("=")[0].strip() for word in name.split(",")]
            unknown = [factor for factor in factors if factor not in experiment.factors]
            found = named_settings(name, settings, kept)
            if unknown and not found:
                hint = did_you_mean(unknown[0], experiment.factors)
                yield place.key_problem(f"{name}: there is no parameter {unknown[0]}; {hint}")
            elif len(found) > 1:
                yield place.key_problem(
                    f"{name} stands for {len(found)} settings, but a figure belongs to one: name the values of "
                    "more parameters"
                )
