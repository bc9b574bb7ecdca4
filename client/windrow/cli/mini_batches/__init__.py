"""`windrow mb`: the mini-batches of a job."""
