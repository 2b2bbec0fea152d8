"""Kubernetes nodes of our machines: tracking, claims, join credentials, template learning, drift."""
