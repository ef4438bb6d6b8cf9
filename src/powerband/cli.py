"""The command line: parse, call one function, print."""


def main() -> None:
    """Entry point of the `powerband` command."""
