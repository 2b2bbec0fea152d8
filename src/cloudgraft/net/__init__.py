"""Limits that listeners share (descriptors, connections, refusals, log lines), and small steps for HTTP clients."""
