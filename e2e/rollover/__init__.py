"""Judges an update of replicas from the previous release to this one and back, under the real autoscaler."""
