"""Python environments for scripts: built with uv from what a step asks for, once for each list, and kept on the node.

`recipe` says what is built and under which name, `cache` where it is kept and who uses it, `build` runs uv, `failures`
decides whose fault a failure is, and `provider` combines them for the steps of this agent.
"""
