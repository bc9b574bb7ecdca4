"""`python -m windrow_agent.sandbox`: prints how far scripts can be confined here, as a JSON document, for
`windrow doctor`.
"""

from __future__ import annotations

import json

from windrow_agent.sandbox.confinement import kernel_abi
from windrow_agent.sandbox.policy import STRICT_ABI, protection

if __name__ == "__main__":
    abi = kernel_abi()
    print(json.dumps({"abi": abi, "is_enough": abi >= STRICT_ABI, "protection": protection("auto", abi)}))
