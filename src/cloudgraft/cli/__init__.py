"""The command line: one module per verb, which wires the parts together."""
