"""Switches a fixed list of machines on and off."""
