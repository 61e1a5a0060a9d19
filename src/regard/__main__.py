"""`python -m regard`: the command line, where the script `regard` is not on the path."""

from regard.cli.main import run

run()
