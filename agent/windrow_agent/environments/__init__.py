"""Python environments for scripts: built from what a step asks for, once for each list, and kept on the node.

`environment_spec` says what is built and under which name, `cache` where it is kept and who uses it, `build` runs uv,
and for conda's own packages `conda_install` before it, `failures` decides whose fault a failure is, and `provider`
combines them for the steps of this agent.
"""
