"""`python -m windrow_agent.environments`: prints what the environments take that agents of this user have built, as a
JSON document, which is empty where there are none. For `windrow doctor`.
"""

from __future__ import annotations

import json
import os

from windrow_agent.environments.cache import KEPT, KEPT_BYTES, UNUSED_S, Cache, user_cache


def look() -> dict[str, object]:
    """The whole document."""
    folder = user_cache(os.environ)
    if folder is None or not folder.is_dir():
        return {}
    limits = {"most": KEPT, "most_bytes": KEPT_BYTES, "unused_days": int(UNUSED_S // 86_400)}
    return {"folder": str(folder), **Cache(folder).kept()._asdict(), **limits}


if __name__ == "__main__":
    print(json.dumps(look()))
