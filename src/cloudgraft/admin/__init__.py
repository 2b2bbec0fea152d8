"""Admin service of a running server: JSON over gRPC, on a unix socket for its own user, or on a TLS port."""
