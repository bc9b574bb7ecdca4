"""An HTTP server of a test's own, in threads of its process."""

from __future__ import annotations

import http.server
import threading


class LocalServer:
    """Serves from the moment it is made; a handler finds it as `self.server.owner`."""

    def __init__(self, handler: type[http.server.BaseHTTPRequestHandler]) -> None:
        # Answers go out in two parts: the second would wait for the first to be acknowledged, 40 ms each time.
        handler.disable_nagle_algorithm = True
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._server.owner = self  # type: ignore[attr-defined]
        # Clients that go away in the middle are what is tested.
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
