"""Plays a day of an autoscaled cluster against a real server through the real client: ``cloudgraft demo``."""
