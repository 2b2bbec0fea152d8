"""Node groups, from the configuration to what the autoscaler is served."""
