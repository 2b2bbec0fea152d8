"""Plays the kubelets of simulated machines: nodes, leases and pods on a real Kubernetes API."""
