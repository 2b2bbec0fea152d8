"""Holds the cloud drivers, one package or module each; entry points find them by name."""
