"""Whole journals: check, repair, export, import."""
