"""A run without a job file: a script, its inputs and options become the job file that would say the same.

Nothing is written here: `make_job_file` returns texts. All else (settings, checks, digests) is what the job file makes
of them, so that everything works as with a file.
"""
