"""For gRPC servers in tests: a port of one's own.

By default gRPC shares ports, and then even "any free port" may be one that a server in another process has: each of the
two gets a part of the calls.
"""

OWN_PORT = (("grpc.so_reuseport", 0),)
