"""Turns three verbs (create, delete, list) into crash-safe node groups."""
