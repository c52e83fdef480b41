"""Library calls of a replica that fail: the page of tests/faults.h, as far as it is needed here."""
import errno
import mmap
import random
import struct
import threading
import time
from pathlib import Path

from claims import ATTND

LIBRARY = Path(ATTND).resolve().parent / "tests/libfaults.so"  # the sanitizers' builds have none
BYTES = 48
KIND, BEFORE, REPEAT, ERROR, SHORTEN, INTERRUPT, HITS, LIVE = 0, 8, 16, 20, 24, 28, 32, 40
ALLOC, READ, RECV, SEND, ACCEPT, LOG, THREAD = range(1, 8)
ERRORS = {RECV: (errno.ECONNRESET, errno.ETIMEDOUT), SEND: (errno.ECONNRESET, errno.EPIPE),
          ACCEPT: (errno.EMFILE, errno.ENFILE, errno.ENOBUFS), LOG: (errno.ENOSPC, errno.EAGAIN, errno.EIO)}


class Faults:
    def __init__(self, folder):
        path = folder / "faults"
        path.write_bytes(bytes(BYTES))
        with open(path, "r+b") as f:
            self.page = mmap.mmap(f.fileno(), BYTES)
        self.environment = {"LD_PRELOAD": str(LIBRARY), "ATTND_TEST_FAULTS": str(path)}
        self.hits, self.chance = 0, random.Random(3)
        self.lock = threading.Lock()  # who has it alone makes calls fail

    def put(self, at, number):
        struct.pack_into("l" if at in (BEFORE, HITS) else "i", self.page, at, number)

    def read(self, at):
        return struct.unpack_from("l", self.page, at)[0]

    def blocks(self):
        """Allocated and not freed."""
        return self.read(LIVE)

    def set(self, kind, before=0, repeat=False, error=errno.ENOMEM):
        for at, number in ((KIND, 0), (BEFORE, before), (REPEAT, repeat), (ERROR, error), (HITS, 0), (KIND, kind)):
            self.put(at, number)

    def clear(self):
        self.put(KIND, 0)
        hits, _ = self.read(HITS), self.put(HITS, 0)
        self.hits += hits
        return hits

    def burst(self, over):
        """For a second single calls fail, anywhere; or for less bytes come one by one."""
        if self.chance.random() < 0.15:
            at = self.chance.choice((SHORTEN, INTERRUPT))
            self.put(at, 1)
            over.wait(0.3)
            self.put(at, 0)
            return
        end = time.monotonic() + 1
        while time.monotonic() < end and not over.is_set():
            kind = self.chance.choice((ALLOC,) * 6 + (RECV, SEND, ACCEPT, LOG, THREAD))
            self.set(kind, self.chance.randrange(120), False, self.chance.choice(ERRORS.get(kind, (errno.ENOMEM,))))
            over.wait(self.chance.random() * 0.1)
            self.clear()

    def run(self, over, excuse):
        while not over.is_set():
            with self.lock, excuse():
                self.burst(over)
            over.wait(0.5)
