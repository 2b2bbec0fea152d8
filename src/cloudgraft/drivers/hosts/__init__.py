"""Machines that are there anyway: to create one is to switch a free one on, and to delete it is to switch it off."""
