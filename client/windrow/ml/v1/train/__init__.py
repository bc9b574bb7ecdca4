"""As `azureml.train`."""
