"""`cloudgraft doctor`: what is wrong with a server, its autoscaler and its cluster, and what mends it.

Everything is looked at first and judged afterwards: :mod:`cloudgraft.doctor.gather` makes a
:class:`~cloudgraft.doctor.picture.Picture`, and :func:`cloudgraft.doctor.checks.examine`, which is pure, turns it into
findings.
"""
