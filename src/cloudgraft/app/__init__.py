"""Builds a running server from a configuration, and keeps it current."""
