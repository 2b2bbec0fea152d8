"""What every HTTPS server of ours needs: a listener with mutual TLS, identities and roles, problems, an audit log."""
