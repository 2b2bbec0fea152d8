"""The provider of a front: every answer from a snapshot of its node manager."""
