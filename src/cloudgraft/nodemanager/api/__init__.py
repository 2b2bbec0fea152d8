"""Serves the node manager over HTTPS: the application, its routes and its JSON."""
