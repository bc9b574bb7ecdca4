"""What users of Windrow import: `windrow.Client`, `windrow.run`, and the values that they return."""
