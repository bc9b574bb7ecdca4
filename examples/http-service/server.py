"""A model server: POST a text to /score, and get its sentiment. It refuses calls beyond a rate, as hosted models do.

Run it with `python server.py [--port 8000] [--rate 10]`; it serves until it is stopped.
"""

from __future__ import annotations

import argparse
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

GOOD = {"good", "great", "love", "excellent", "happy", "fast", "friendly", "clean"}
BAD = {"bad", "poor", "hate", "awful", "broken", "slow", "rude", "dirty"}


def score(text: str) -> float:
    """From -1 (bad) to 1 (good)."""
    words = re.findall(r"[a-z]+", text.lower())
    good, bad = sum(word in GOOD for word in words), sum(word in BAD for word in words)
    return round((good - bad) / max(1, good + bad), 3)


class Server(ThreadingHTTPServer):
    """Takes `rate` calls a second."""

    def __init__(self, port: int, rate: int) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self._rate = rate
        self._lock = threading.Lock()
        self._second = 0
        self._calls = 0

    def wait_s(self) -> float:
        """0.0 if a call may be answered now; else how long its caller has to wait."""
        with self._lock:
            now = time.monotonic()
            if int(now) != self._second:
                self._second, self._calls = int(now), 0
            self._calls += 1
            return 0.0 if self._calls <= self._rate else int(now) + 1 - now


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: Server

    def do_POST(self) -> None:
        """Score a text, or say when to come back."""
        text = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        wait_s = self.server.wait_s()
        if wait_s:
            self.send_response(429)
            self.send_header("Retry-After", f"{wait_s:.2f}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        answer = json.dumps({"score": score(text)}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def main() -> None:
    """Serve until stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--rate", type=int, default=10, help="calls a second")
    options = parser.parse_args()
    server = Server(options.port, options.rate)
    print(f"Serving on http://127.0.0.1:{server.server_port}, {options.rate} calls a second", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
