"""`windrow schema`: the JSON Schema of job files."""

from __future__ import annotations

from windrow.cli.options.declared import command


@command(
    epilog="Example: windrow schema > job.schema.json", short_help="Print the JSON Schema of job files, for editors."
)
def schema() -> int:
    """Print the JSON Schema of job files, by which editors complete, explain and check their keys."""
    from importlib import resources

    print((resources.files("windrow.spec") / "job.schema.json").read_text("utf-8"), end="")
    return 0
