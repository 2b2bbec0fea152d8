"""Calls a cloud through three HTTPS endpoints that its owner writes, in any language."""
