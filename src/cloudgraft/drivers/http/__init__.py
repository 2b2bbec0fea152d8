"""The driver ``http``: a cloud behind three HTTPS endpoints that its owner writes, in any language."""
