"""`windrow setup`: the private authority of one installation, and what each role needs from it.

- `authority`      makes and renews keys and certificates.
- `owned_files`    writes the files, each for its owner.
- `__main__`       the command.
"""
