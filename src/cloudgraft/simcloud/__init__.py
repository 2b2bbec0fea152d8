"""A simulated cloud: a real process with its own ledger, and its driver."""
