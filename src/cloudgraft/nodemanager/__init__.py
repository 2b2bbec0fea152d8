"""Serves an engine over HTTPS, and provides its node groups to autoscaler fronts."""
