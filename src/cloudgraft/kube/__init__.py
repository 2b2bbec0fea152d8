"""The only place that talks to the Kubernetes API. Needs the extra ``kubernetes``, and only when a client is made."""
