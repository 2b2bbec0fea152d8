"""The simulated cloud as a process of its own, over HTTP."""
