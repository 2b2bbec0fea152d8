"""The driver ``router``: several clouds behind one node group."""
