"""`python -m powerband` is the `powerband` command."""

from powerband.cli import main

main()
