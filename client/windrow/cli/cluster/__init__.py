"""Masters, agents, nodes and tokens, and the health of all of them."""
