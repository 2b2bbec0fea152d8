"""Peers with a remote cluster by plain objects at both sides."""
