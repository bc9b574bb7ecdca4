"""What stays in a state folder, and for how long: ended jobs are deleted, and what belongs to no job is collected.

- `job_uses`     what a job uses of others, and what others may use of it
- `promises`     what would be lost with a job, and what keeps it
- `choosing`     which jobs are old enough
- `removal`      the way a job goes: whole until its note is written, gone for good afterwards, whatever dies meanwhile
- `collection`   archives, uploads, notes and folders that no job needs any more
- `keeper`       all of that, for calls and by the clock
"""
