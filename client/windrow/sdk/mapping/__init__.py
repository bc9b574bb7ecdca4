"""`windrow.map`: a function of Python over many items, as a job of this machine."""
