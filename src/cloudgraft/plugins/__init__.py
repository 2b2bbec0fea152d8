"""Drivers and providers as processes of their own, and those found as Python entry points."""
