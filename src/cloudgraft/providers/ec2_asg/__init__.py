"""Serves Auto Scaling groups of Amazon EC2 as node groups."""
