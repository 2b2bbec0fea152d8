"""Provides node groups to the autoscaler from a snapshot of a node manager."""
