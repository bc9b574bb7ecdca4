"""The state folder as files: where everything in it is, and how it is read and written.

- `state_files`  every place in a state folder. Nobody else joins a path below it.
- `lock`         who holds the folder; `reserve`: the room kept back in it; `filesystem`: whether it can be one.
- `recipes`, `artifacts`, `upload_lists`, `checked_records`: kinds of files, verified when they are read.
- `durable`      folders and names that survive a loss of power; `temporary`: those that go with their process.
- `disk_use`     how much each kind of thing takes.
- `backup_lock`  keeps backups and deletions apart.
- `step_damage`  what is raised where a file of one step is not what was written.
"""
