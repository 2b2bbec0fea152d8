"""Diagnoses a server, its autoscaler and its cluster, and says how to fix what is wrong (`cloudgraft doctor`).

Everything is looked at first and judged afterwards: :mod:`cloudgraft.doctor.gather` makes a
:class:`~cloudgraft.doctor.inputs.Inputs`, and :func:`cloudgraft.doctor.checks.examine`, which is pure, turns it into
findings.
"""
