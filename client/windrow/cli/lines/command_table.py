"""Every command of `windrow`, and where it is. A command line loads only the one that it names."""

from __future__ import annotations

from windrow.cli.options.declared import EXIT_CODES, Group

WINDROW = Group(
    "Run a script over one big input on many processes and machines, each row exactly once.",
    f"Example: windrow run job.yml\n\n{EXIT_CODES}",
    {
        "run": "running.run_command:run",
        "master": "cluster.roles:master",
        "setup": "cluster.roles:setup",
        "schema": "running.schema:schema",
        "agent": "cluster.agent:agent",
        "top": "top.command:top",
        "init": "running.init:init",
        "validate": "running.validate:validate",
        "backup": "cluster.backup:backup",
        "restore": "cluster.backup:restore",
        "doctor": "cluster.doctor:doctor",
        "health": "cluster.health:health",
        "usage": "cluster.usage:usage",
        "job": Group(
            "Submit, inspect, follow, cancel, download and delete jobs.",
            "Example: windrow job list",
            {
                "create": "jobs.create:create",
                "validate": "running.validate:validate",
                "list": "jobs.listing:list_jobs",
                "show": "jobs.show:show",
                "rows": "jobs.rows:rows",
                "query": "jobs.query:query",
                "explain": "jobs.explain:explain",
                "stream": "jobs.stream:stream",
                "wait": "jobs.wait:wait",
                "cancel": "jobs.cancel:cancel",
                "update": "jobs.update:update",
                "retry": "jobs.retry:retry",
                "delete": "jobs.deletion:delete",
                "prune": "jobs.deletion:prune",
                "download": "jobs.files:download",
                "logs": "jobs.logs:logs",
                "report": "jobs.report:report",
            },
        ),
        "mb": Group(
            "Inspect the mini-batches of a job, or run one again here.",
            "Example: windrow mb list digits-20260501-101500-ab12 --only failed",
            {
                "list": "mini_batches.commands:list_mini_batches",
                "show": "mini_batches.commands:show",
                "replay": "mini_batches.commands:replay",
                "bundle": "mini_batches.commands:bundle",
            },
        ),
        "data": Group(
            "Register, list and show data assets.",
            "Example: windrow data create --name flowers --path ./flowers",
            {
                "create": "assets.registered:DATA.create",
                "list": "assets.registered:DATA.list",
                "show": "assets.registered:DATA.show",
            },
        ),
        "model": Group(
            "Register, list and show models.",
            "Example: windrow model create --name flowers --path ./flowers",
            {
                "create": "assets.registered:MODEL.create",
                "list": "assets.registered:MODEL.list",
                "show": "assets.registered:MODEL.show",
            },
        ),
        "environment": Group(
            "Register, list and show environments.",
            "Example: windrow environment create --file environment.yml",
            {
                "create": "assets.packages:ENVIRONMENT.create",
                "list": "assets.packages:ENVIRONMENT.list",
                "show": "assets.packages:ENVIRONMENT.show",
            },
        ),
        "component": Group(
            "Register, list and show components.",
            "Example: windrow component create --file component.yml",
            {
                "create": "assets.packages:COMPONENT.create",
                "list": "assets.packages:COMPONENT.list",
                "show": "assets.packages:COMPONENT.show",
            },
        ),
        "pipeline": Group(
            "Publish pipelines, and run them by name.",
            "Example: windrow pipeline run nightly --param day=2026-05-01",
            {
                "publish": "assets.pipeline:publish",
                "list": "assets.pipeline:list_pipelines",
                "show": "assets.pipeline:show",
                "run": "assets.pipeline:run",
            },
        ),
        "registry": Group(
            "Name folders that mirror registries of components.",
            "Example: windrow registry add azureml ./azureml-assets",
            {
                "add": "assets.registry:add",
                "list": "assets.registry:list_registries",
                "remove": "assets.registry:remove",
            },
        ),
        "node": Group(
            "Inspect, cordon, drain and remove the nodes of a master.",
            "Example: windrow node list",
            {
                "list": "cluster.node:list_nodes",
                "drain": "cluster.node:drain",
                "cordon": "cluster.node:cordon",
                "uncordon": "cluster.node:uncordon",
                "remove": "cluster.node:remove",
            },
        ),
        "queue": Group(
            "Show and set what each project may have of the cluster.",
            "Example: windrow queue list",
            {
                "list": "cluster.queue:list_queues",
                "show": "cluster.queue:show",
                "explain": "cluster.queue:explain",
                "set": "cluster.queue:set_queue",
                "apply": "cluster.queue:apply",
            },
        ),
        "fleet": Group(
            "Get agents from an engine as the queue needs them.",
            "Example: windrow fleet list",
            {
                "run": "cluster.fleet:run",
                "list": "cluster.fleet:list_fleets",
                "show": "cluster.fleet:show",
                "pause": "cluster.fleet:pause",
                "resume": "cluster.fleet:resume",
                "scale": "cluster.fleet:scale",
                "delete": "cluster.fleet:delete",
                "scaler": "cluster.fleet:scaler",
            },
        ),
        "token": Group(
            "Make, list and revoke the tokens of a master.",
            "Example: windrow token list",
            {"create": "cluster.token:create", "list": "cluster.token:list_tokens", "revoke": "cluster.token:revoke"},
        ),
        "context": Group(
            "Name masters, with address, certificates and client token.",
            "Example: docker compose run --rm -T client context export | windrow context add local -",
            {
                "add": "cluster.context:add",
                "use": "cluster.context:use",
                "list": "cluster.context:list_contexts",
                "remove": "cluster.context:remove",
                "export": "cluster.context:export",
            },
        ),
        "state": Group(
            "Check a state folder, and salvage a damaged one.",
            "Example: windrow state check /var/lib/windrow",
            {"check": "cluster.state:check", "salvage": "cluster.state:salvage"},
        ),
    },
)
