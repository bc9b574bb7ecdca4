"""`windrow job`: the jobs of a master."""
