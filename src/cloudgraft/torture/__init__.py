"""Kills a server under load at random moments, and reconciles it with its cloud: for the author of any driver."""
