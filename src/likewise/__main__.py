"""`python -m likewise`: the command line."""

from likewise.cli.main import main

main()
