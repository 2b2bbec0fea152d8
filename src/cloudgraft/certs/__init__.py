"""Certificates for mutual TLS: make them, renew them, and say what is wrong with them.

Nothing is imported here: a server needs only :mod:`cloudgraft.certs.pem`, and starts faster without the rest.
"""
