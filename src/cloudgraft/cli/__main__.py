"""``python -m cloudgraft.cli``, for where the console script is not on the PATH."""

from cloudgraft.cli.main import main

main()
