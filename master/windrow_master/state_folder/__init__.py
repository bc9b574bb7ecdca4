"""A state folder as a whole: opened for the one master that may use it (`opening`), or examined for `windrow doctor`.

`python -m windrow_master.state_folder DIR` reports whether DIR can be a state folder (docs/contracts.md, section 5b).
"""
