"""What all roles share: names, numbers in words, notes on disk, the log, the Python that runs scripts."""
