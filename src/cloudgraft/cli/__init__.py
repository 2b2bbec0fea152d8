"""Implements the command line: one module per verb."""
