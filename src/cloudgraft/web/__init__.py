"""Provides what our HTTPS servers share: a listener with mutual TLS, identities and roles, problems, an audit log."""
