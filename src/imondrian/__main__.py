"""`python -m imondrian`: the command line."""

from imondrian.cli.app import main

main()
