"""The durable state of a master: jobs, steps, mini-batches, attempts, nodes, events, segments, outputs.

`protocol` is what the rest of the master sees, `sqlite` the store behind it: `connections` opens the database and
brings its schema up to date, `groups` and `statements` write, `loading` makes the snapshot for a new master, `reading`
answers readers. `filesystem`, `lock` and `reserve` guard the state folder.
"""
