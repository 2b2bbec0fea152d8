"""Checks, repairs, exports and imports whole journals."""
