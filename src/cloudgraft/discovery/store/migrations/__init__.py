"""Migrates older discovery databases. Written by hand, and never changed once released."""
