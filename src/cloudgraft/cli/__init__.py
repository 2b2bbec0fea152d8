"""Implements the command line: one module per verb.

A verb's module has the options and the help at its top. It imports what only the work needs inside the command, so that
help, completion and small commands are quick. Work of more than a few lines is in ``<verb>_run.py``, or for servers in
:mod:`cloudgraft.app`. ``tests/cli/test_imports.py`` holds that.
"""
