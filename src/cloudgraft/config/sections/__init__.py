"""Defines the sections of the configuration file, one module each."""
