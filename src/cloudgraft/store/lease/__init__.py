"""Elects a leader in PostgreSQL, and fences the writer of a SQLite file."""
