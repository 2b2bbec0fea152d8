"""Adds remote clusters as nodes through Liqo."""
