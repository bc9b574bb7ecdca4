"""Command lines: the table of commands, and the two readers that find, read and execute one."""
