"""The loop of one cloud: list it, decide about each machine, make the calls."""
