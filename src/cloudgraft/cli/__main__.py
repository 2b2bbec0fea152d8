"""Runs ``python -m cloudgraft.cli``, where the console script is not on the PATH."""

from cloudgraft.cli.main import main

main()
