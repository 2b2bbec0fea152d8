"""Clouds that Apache Libcloud can serve; which ones, and with what limits, is in ``providers``."""
