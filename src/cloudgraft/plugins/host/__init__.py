"""The host's side: starts a plugin, watches it, and calls it."""
