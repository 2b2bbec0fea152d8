"""Serves discovery over HTTPS: the application, its routes and its JSON."""
