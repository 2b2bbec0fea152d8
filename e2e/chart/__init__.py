"""Judges the Helm chart by the real helm, and by a real API server."""
