"""Servers of Hetzner Cloud."""
