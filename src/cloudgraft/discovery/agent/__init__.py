"""The agent of a remote cluster: measures what is free, and announces it."""
