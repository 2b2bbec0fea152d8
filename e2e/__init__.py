"""The real Cluster Autoscaler against a real Kubernetes API, through cloudgraft. For developers; not shipped."""
