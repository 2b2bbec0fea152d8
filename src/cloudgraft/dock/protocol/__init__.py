"""Implements the protocol between hub and drivers, in both versions."""
