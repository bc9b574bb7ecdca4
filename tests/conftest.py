"""For all tests: Ctrl-C means Ctrl-C.

A shell starts a background command with SIGINT ignored; every process below inherits that, and CI runners start
tests so.
"""

from __future__ import annotations

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
