"""Makes, renews and checks certificates for mutual TLS.

Nothing is imported here: a server needs only :mod:`cloudgraft.certs.pem`, and starts faster without the rest.
"""
