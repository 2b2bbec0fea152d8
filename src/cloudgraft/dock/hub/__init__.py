"""The hub that drivers dial in at: admission, sessions, operations."""
