"""`python -I start.py <policy> <command> <argument>...`: becomes the user that a policy (JSON) names, if it names one,
confines itself as the policy demands, and becomes the command. For builders of environments, and the Pythons that they
have made: both run code of packages.
"""

from __future__ import annotations

import json
import os
import sys


def _main() -> None:
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import confinement  # type: ignore[import-not-found]
    import system_calls  # type: ignore[import-not-found]
    import users  # type: ignore[import-not-found]

    policy, command = json.loads(sys.argv[1]), sys.argv[2:]
    if policy["user"]:
        try:
            users.become(policy["user"])
        except users.CannotBecome as error:
            sys.exit(f"error: this is not started, since {error}")
    try:
        if policy["confined"] and confinement.confine(policy):
            system_calls.forbid(set_user=not policy.get("all"))
    except (OSError, confinement.CannotConfine) as error:
        if policy["abi"]:
            sys.exit(f"error: this cannot be confined (--sandbox strict): {error}")
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"error: {command[0]} cannot be started: {error.strerror}")


if __name__ == "__main__":
    _main()
