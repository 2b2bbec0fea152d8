"""Liqo's objects: kinds, manifests, and how they are made to exist."""
