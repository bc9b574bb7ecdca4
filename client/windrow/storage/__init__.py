"""Storage beyond local folders: addresses, stores, listings, transfers. Master and agent reach it, workers never do.

``urls`` needs the standard library only, and the job file is checked with it; the rest needs the extra ``storage``,
and loads it when the first store is opened.
"""

from __future__ import annotations
