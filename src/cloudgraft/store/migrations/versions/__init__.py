"""Holds one module per migration: `revision` is its number, `down_revision` the number of the previous one."""
