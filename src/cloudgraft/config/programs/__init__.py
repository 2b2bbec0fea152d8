"""Reads the configuration files of programs other than the server for the autoscaler."""
