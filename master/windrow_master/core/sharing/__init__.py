"""How workers are shared out: to projects by what they are owed, in them to steps, and for steps to nodes.

filling         fair shares as fractions of a capacity
entitlements    whole workers for each step
placing         on which nodes

All of it is arithmetic: it knows nothing of the core's state, and changes nothing.
"""
