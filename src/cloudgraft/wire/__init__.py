"""Converts between protobuf messages and our types. No other package does."""
