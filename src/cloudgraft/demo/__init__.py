"""A day of an autoscaled cluster, played against a real server through the real client: ``cloudgraft demo``."""
