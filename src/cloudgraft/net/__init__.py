"""Limits that every listener shares: descriptors, connections, refusals, log lines."""
