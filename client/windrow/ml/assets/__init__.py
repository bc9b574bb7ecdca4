"""What jobs use by name: data, models, environments."""
