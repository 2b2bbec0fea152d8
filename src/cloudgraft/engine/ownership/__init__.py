"""Decides which machines are ours, and which may be adopted, released or deleted. Pure."""
