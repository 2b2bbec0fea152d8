"""Serves one node group from several clouds."""
