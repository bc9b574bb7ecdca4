"""What drives the core: the one writer, its commits, and what carries its effects out.

commands ──► writer ──► core          (changes the state at once)
               ├──► committer ──► segments, store      (one group at a time)
               └──► carrier ──► streams, planners, finishers, watchers
"""
