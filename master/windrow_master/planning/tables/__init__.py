"""Tables: pinning columns and types from a sample, and cutting files into slices.

source (MLTable file, or plain files) ──► files ──► listing: size and time of each, its header or footer
                                                       ──► pinned reader: columns, types, layouts
                                                       ──► slices: by bytes between records, or by row group ──► recipes
"""

from __future__ import annotations
