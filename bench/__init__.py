"""How much cloudgraft adds to a bare gRPC server, as ratios: ``python -m bench``.

Absolute times say more about the machine than about the code, so every figure is taken from two servers, a bare one
and ours, asked the same bytes in turn.
"""
