"""Renders a report for people (terminal, web page) and for programs (JSON, JUnit), and the table of rules."""
