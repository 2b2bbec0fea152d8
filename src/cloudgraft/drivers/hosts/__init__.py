"""Switches existing machines: create powers a free one on, and delete powers it off."""
