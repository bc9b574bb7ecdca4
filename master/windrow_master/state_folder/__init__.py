"""A state folder as a whole: opened by the one master that may (`opening`), or looked at for `windrow doctor`.

`python -m windrow_master.state_folder DIR` says whether DIR can be one (docs/contracts.md, section 5b).
"""
