"""Builds node groups, from the configuration to what the autoscaler sees."""
