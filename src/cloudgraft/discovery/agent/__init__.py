"""Measures a remote cluster's free resources, and reports them to discovery."""
