"""What operators order: adopt, release, delete orphans, mark, pause, accept losses."""
