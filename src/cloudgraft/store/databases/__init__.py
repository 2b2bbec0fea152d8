"""SQLite and PostgreSQL: connections, transactions, files, locks."""
