"""As `azureml.contrib.pipeline`."""
