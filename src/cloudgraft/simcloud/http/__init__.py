"""Serves the simulated cloud over HTTP, as a process of its own."""
