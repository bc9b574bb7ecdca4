"""As `azureml.contrib`."""
