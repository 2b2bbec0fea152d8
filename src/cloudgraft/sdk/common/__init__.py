"""Mechanisms that all packages share: retries, the event loop, child processes, files, rates."""
