"""The protocols, and the only place where protobuf meets our types."""
