"""Carries out operators' requests: adopt, release, delete orphans, mark, pause, accept losses."""
