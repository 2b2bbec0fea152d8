"""Keeps the journal: every intent is on disk before the engine acts on it."""
