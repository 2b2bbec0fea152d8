"""Looking at everything: each source by itself, each with a time limit. What cannot be had is told, never raised."""
