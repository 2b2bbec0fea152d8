"""Decides about one machine: its states, its observation, and the next action. Pure."""
