"""Turns machines into nodes of a cluster: user data at boot, and labels and taints for their nodes."""
