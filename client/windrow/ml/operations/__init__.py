"""The operations of an `MLClient`, one module for each attribute such as `client.jobs`."""
