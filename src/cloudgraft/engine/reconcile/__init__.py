"""Reconciles one cloud: lists it, decides about each machine, and makes the calls."""
