"""The journal: what is meant to be, on disk before anything is done about it."""
