"""Runs drivers and providers as separate processes, and finds those installed as Python entry points."""
