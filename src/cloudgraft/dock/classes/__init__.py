"""Loads machine classes and their secrets from the configuration, from files and from Kubernetes."""
