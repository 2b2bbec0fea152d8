"""Judges the drivers of clouds by real servers, started here: ``make test-clouds``."""
