"""Virtual environments for scripts: built with uv from what a step asks for, once for each list, and kept on the node.

`recipe` says what is built and how it is called, `cache` where it lies and who holds it, `build` runs uv, `verdict`
tells whose fault a failure is, `provider` brings them together for the steps of this agent.
"""
