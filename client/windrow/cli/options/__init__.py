"""Options and arguments: how commands declare them, and those that several share."""
