"""The embedded mode: a private master and agent on this machine, over a state folder.

`child`, `state_folder`, `process` and `supervisor` are needed before the first `run()`: they import only what the
interpreter loads anyway (no pathlib, dataclasses, subprocess or logging).
"""
