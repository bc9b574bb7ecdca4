"""`windrow top`: jobs, nodes and workers, live on the whole screen."""
