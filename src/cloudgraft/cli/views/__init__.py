"""Prints the results of commands: tables for people, JSON for programs."""
