"""Stores discovery's data: tables, rows, statements, encrypted credentials."""
