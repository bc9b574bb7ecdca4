"""What the master keeps under a name: data, models, environments, components, pipelines."""
