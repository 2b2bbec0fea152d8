"""Decides the values of the Helm chart that fit a configuration file. Only `absent` looks at this host."""
