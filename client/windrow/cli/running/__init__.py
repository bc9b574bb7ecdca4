"""`windrow run` and what it is made of, and the commands that look at a job file."""
