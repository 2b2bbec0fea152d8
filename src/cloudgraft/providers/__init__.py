"""Providers that bring node groups of their own, found through entry points."""
