"""The `powerband` command, also as `python -m powerband`."""

import signal


def start() -> None:
    """Runs the command. While it is imported, a Ctrl-C ends the process at once, without a traceback; where Ctrl-C is
    ignored, it stays so."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from powerband.cli import main  # noqa: PLC0415 - it takes a while

    signal.signal(signal.SIGINT, before)
    main()


if __name__ == "__main__":
    start()
