"""Connects to SQLite and PostgreSQL: transactions, files, locks."""
