"""One module per step; `revision` is its number, `down_revision` the number of the one before."""
