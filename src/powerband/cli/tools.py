"""doctor: looks at the machine."""

from __future__ import annotations

from dataclasses import asdict

import click

from powerband.cli.options import format_option, print_json
from powerband.errors import EXIT_OK, MeasurementError


@click.command()
@format_option
def doctor(output: str) -> int:
    """Look for what disturbs measurements on this machine.

    Says what to do about each thing found, and changes nothing.
    """
    from powerband.doctor import Status, examine

    findings = examine()
    if output == "json":
        print_json({"format": 1, "findings": [asdict(finding) for finding in findings]})
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            click.echo(f"{finding.status:7}  {finding.name:{width}}  {finding.found}")
            if finding.advice:
                click.echo(f"{'':7}  {'':{width}}  -> {finding.advice}")
    failed = any(finding.status is Status.FAILURE for finding in findings)
    return MeasurementError.exit_code if failed else EXIT_OK
