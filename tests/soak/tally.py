"""What clients say of their requests, and what of it may be."""
import collections
import contextlib
import threading
import time

LATE = 3  # seconds until every client has noticed what became of its request


class Excuse:
    """While it is open, events of this kind are no failure; in the end there may be as many as `most` says."""

    def __init__(self, what, fits, most=lambda: float("inf")):
        self.what, self.fits, self.most = what, fits, most
        self.events, self.open, self.until = [], 0, 0.0

    @property
    def seen(self):
        return len(self.events)

    @contextlib.contextmanager
    def __call__(self):
        self.open += 1
        try:
            yield
        finally:
            self.until = time.monotonic() + LATE
            self.open -= 1

    def covers(self, *event):
        return (self.open > 0 or time.monotonic() < self.until) and self.fits(*event)


class Tally:
    """`small` are the cases whose times count."""

    def __init__(self, excuses, small):
        self.excuses, self.small, self.lock = excuses, small, threading.Lock()
        self.counts = collections.Counter()  # (language, outcome)
        self.times = []  # (when, milliseconds)
        self.worst, self.failure = 0.0, None

    def fail(self, why):
        self.failure = self.failure or why

    def add(self, language, outcome, case, ms, replica, detail):
        now = time.monotonic()
        with self.lock:
            self.counts[language, outcome] += 1
            if outcome == "right":
                self.worst = max(self.worst, float(detail))
                if case in self.small:
                    self.times.append((now, float(ms)))
            elif outcome not in ("expected", "left", "stale"):
                for e in self.excuses:
                    if e.covers(replica, outcome, detail):
                        e.events.append(f"{language} asks for {case!r}: {outcome}, {replica}: {detail}")
                        return
                self.fail(f"{language} asks for {case!r}: {outcome}, {replica}: {detail}")

    def listen(self, language, stream):
        """Lines as client.py has them, until they end. Others that say FAIL are one, too."""
        for line in stream:
            words = line.rstrip("\n").split("\t")
            if len(words) == 5:
                self.add(language, *words)
            elif len(words) == 6:
                self.add(*words)
            else:
                print(line, end="", flush=True)
                if line.startswith("FAIL"):
                    self.fail(line)

    def of(self, *outcomes):
        return sum(n for (_, what), n in self.counts.items() if what in outcomes)

    def languages(self):
        sums = collections.Counter()
        for (language, _), n in self.counts.items():
            sums[language] += n
        return sums

    def thirds(self, begin, end):
        """(p50, p99) in milliseconds, of the first and of the last third of that time."""
        third = (end - begin) / 3
        parts = ([ms for t, ms in self.times if t < begin + third], [ms for t, ms in self.times if t > end - third])
        return [(p[len(p) // 2], p[len(p) * 99 // 100]) for p in map(sorted, parts)]
