"""Simulates a cloud: a real process with its own ledger, and its driver."""
