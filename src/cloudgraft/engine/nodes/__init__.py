"""Tracks the Kubernetes nodes of our machines: claims, join credentials, template learning, drift."""
