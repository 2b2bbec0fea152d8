"""Machines of Amazon EC2, and of others that speak its API."""
