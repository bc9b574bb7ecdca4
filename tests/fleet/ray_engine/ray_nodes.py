"""A Ray cluster of several nodes on this machine, by Ray's own utility: commands come on standard input, a line each.

`add CPUS` adds a node and tells its id; `kill ID` ends all of a node at once; `actors all` tells of all actors that
there have been. It ends when its input does.
"""

from __future__ import annotations

import json
import logging
import sys
from importlib import import_module
from typing import Any

cluster_utils: Any = import_module("ray.cluster_utils")


def main() -> None:
    cluster = cluster_utils.Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "include_dashboard": False, "object_store_memory": 80 << 20},
    )
    try:
        print(f"> {cluster.address}", flush=True)
        nodes = {}
        for line in sys.stdin:
            what, value = line.split()
            if what == "add":
                node = cluster.add_node(num_cpus=int(value), object_store_memory=80 << 20)
                nodes[node.node_id] = node
                print(f"> {node.node_id}", flush=True)
            elif what == "actors":
                print(f"> {json.dumps(actors(cluster.global_state.actor_table(None)))}", flush=True)
            else:
                cluster.remove_node(nodes.pop(value), allow_graceful=False)
                print("> gone", flush=True)
    finally:
        cluster.shutdown()


def actors(table: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """What the tests need of the cluster's own table."""
    return [
        {
            "name": one["Name"],
            "state": one["State"],
            "node": one["Address"]["NodeID"],
            "pid": one["Pid"],
        }
        for one in table.values()
    ]


if __name__ == "__main__":
    logging.disable()
    main()
