"""Carries out operators' requests: adopt, release, delete orphans, mark, scale, pause, accept losses."""
