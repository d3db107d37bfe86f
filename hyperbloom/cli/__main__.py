"""`python -m hyperbloom.cli`, the same as the console script."""

from hyperbloom.cli import main

main()
