"""A Ray cluster of several nodes on this machine, by Ray's own utility: commands come on standard input, a line each.

`add CPUS` adds a node and tells its id; `kill ID` ends all of a node at once. It ends when its input does.
"""

from __future__ import annotations

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
            else:
                cluster.remove_node(nodes.pop(value), allow_graceful=False)
                print("> gone", flush=True)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    logging.disable()
    main()
