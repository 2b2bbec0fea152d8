"""Three verbs become crash-safe node groups."""
