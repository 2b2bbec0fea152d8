"""Migrates the journal's schema, step by step."""
