"""Provides what several drivers share: error tables, JSON, limits on libraries, secrets in files."""
