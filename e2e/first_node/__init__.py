"""Types the page "From an empty cluster to the first scaled node", on a cluster whose pods are real processes."""
