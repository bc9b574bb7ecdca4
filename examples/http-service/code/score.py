"""Calls a model server for each review. One call of `run()` is one call of the server."""

from __future__ import annotations

import argparse
import json
import urllib.request


def init():
    global url
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="http://127.0.0.1:8000/score")
    url = parser.parse_known_args()[0].url


def run(mini_batch):
    rows = []
    for review in mini_batch.itertuples():
        # A refused call raises urllib's HTTPError. Its Retry-After says when Windrow tries again.
        with urllib.request.urlopen(url, data=review.text.encode(), timeout=30) as answer:
            rows.append({"review": review.review, "score": json.load(answer)["score"]})
    return rows
