"""Reports the state of the engine: reports, explanations, metrics, webhook."""
