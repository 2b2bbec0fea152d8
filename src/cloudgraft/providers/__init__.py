"""Holds the providers of clouds with their own node groups; entry points find them by name."""
