"""Starts plugins, monitors them, and calls them: the host's side."""
