"""Serves drivers that dial in: admission, sessions, operations."""
