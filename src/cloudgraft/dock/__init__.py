"""Drivers that dial in: the hub that they call, the runner that calls it, and the bridge to the engine."""
