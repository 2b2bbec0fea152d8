"""Drivers of clouds, one package or module each; found by their names through entry points."""
