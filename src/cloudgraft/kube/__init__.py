"""Calls the Kubernetes API; no other package does. Needs the extra ``kubernetes``, but only to create a client."""
