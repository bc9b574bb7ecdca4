"""`python -m windrow_agent.sandbox`: prints how far scripts can be confined here, and whether jobs can have users, as a
JSON document, for `windrow doctor`.
"""

from __future__ import annotations

import json

from windrow_agent.sandbox.confinement import kernel_abi
from windrow_agent.sandbox.installation import changeable_code
from windrow_agent.sandbox.job_users import possible
from windrow_agent.sandbox.policy import STRICT_ABI, protection
from windrow_agent.sandbox.service_sockets import service_sockets

if __name__ == "__main__":
    abi = kernel_abi()
    can, how = possible()
    words = protection("auto", abi, changeable=changeable_code())
    found = {"abi": abi, "is_enough": abi >= STRICT_ABI, "protection": words, "sockets": service_sockets()}
    print(json.dumps(found | {"job_users": {"possible": can, "how": how}}))
