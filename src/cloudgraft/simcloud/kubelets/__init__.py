"""Kubelets of simulated machines: nodes, leases and pods on a real Kubernetes API."""
