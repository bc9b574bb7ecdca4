"""Jobs and their steps: built in Python, loaded from YAML, written as YAML."""
