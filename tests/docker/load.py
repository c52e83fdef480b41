"""Clients that ask attnd, or what stands before it, without a pause, and look at every answer.

    load.py URL SECONDS     prints what became of the requests

What they ask for is computed from the demo model, and must be the same bytes each time.
"""
import collections
import http.client
import json
import sys
import threading
import time
import urllib.parse

PATH = "/v1/models/demo/attention"
HEADERS = {"Content-Type": "application/json", "Accept": "application/x-npy"}


def question(tokens, **fields):
    """A request for the demo model (16 numbers a token) as JSON."""
    rows = [[((7 * t + 3 * d) % 11 - 5) / 8 for d in range(16)] for t in range(tokens)]
    return json.dumps({"inputs_embeds": [rows], **fields}).encode()


# 2 KiB, which HAProxy may send again; 50 KiB, which it may not, for an answer of 1.5 MiB that takes a while.
SMALL = question(16)
LARGE = question(256, return_outputs=False, return_attentions=True)


class Load:
    """`clients` threads; each second one opens a connection for each request, the others keep theirs."""

    def __init__(self, url, clients=8, bodies=(SMALL, LARGE), pause=0.0):
        at = urllib.parse.urlsplit(url)
        self.host, self.port = at.hostname, at.port
        self.bodies, self.pause = bodies, pause
        self.counts = collections.Counter()
        self.first = {}  # the first answer to each body
        self.failures = []
        self.lost_from = 0.0  # when the last request that was lost began, by time.monotonic()
        self.ended = threading.Event()
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(n,), daemon=True) for n in range(clients)]

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *exc):
        self.ended.set()
        for t in self.threads:
            t.join()

    def wait(self, more, seconds=60):
        """Until `more` requests were answered from now on."""
        until, goal = time.monotonic() + seconds, self.counts["ok"] + more
        while self.counts["ok"] < goal:
            if time.monotonic() > until:
                raise AssertionError(f"{seconds} s are not enough for {more} answers: {self}")
            time.sleep(0.01)

    def run(self, number):
        keep, sent, connection = number % 2 == 0, number, None
        while not self.ended.is_set():
            body = self.bodies[sent // 2 % len(self.bodies)]
            sent += 1
            if connection is None:
                connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
            fresh, begin = connection.sock is None, time.monotonic()
            what = self.ask(connection, body, {} if keep else {"Connection": "close"})
            if what == "broken" and not fresh:
                # It may have been closed while it was idle, as any server may; the client asks once more.
                connection.close()
                what = "stale"
            with self.lock:
                self.counts[what] += 1
                if what not in ("ok", "stale"):
                    self.lost_from = max(self.lost_from, begin)
            if what != "ok" or not keep:
                connection.close()
                connection = None
            if what == "unreachable":
                time.sleep(0.02)
            time.sleep(self.pause)

    def ask(self, connection, body, more):
        try:
            if connection.sock is None:
                connection.connect()
        except OSError as e:
            return self.failed("unreachable", e)
        try:
            connection.request("POST", PATH, body, {**HEADERS, **more})
            answer = connection.getresponse()
            got = answer.read()
        except (OSError, http.client.HTTPException) as e:
            return self.failed("broken", e)
        if answer.status != 200:
            return self.failed(str(answer.status), got[:300])
        if self.first.setdefault(body, got) != got:
            return self.failed("wrong", "another answer than the first")
        return "ok"

    def failed(self, what, why):
        with self.lock:
            if self.counts[what] < 5:
                self.failures.append(f"{what}: {why!r}")
        return what

    def lost(self, *besides):
        """How many requests got no answer, or a wrong one; `besides` are outcomes that are none."""
        return sum(n for what, n in self.counts.items() if what != "ok" and what not in besides)

    def __str__(self):
        return ", ".join(f"{n} {what}" for what, n in sorted(self.counts.items()))


def main():
    with Load(sys.argv[1]) as load:
        time.sleep(float(sys.argv[2]))
    print(load)
    print("\n".join(load.failures))
    return load.lost() != 0


if __name__ == "__main__":
    sys.exit(main())
