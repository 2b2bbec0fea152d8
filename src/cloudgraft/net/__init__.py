"""Limits listeners (descriptors, connections, rejections, log lines), and reads HTTP in small steps."""
