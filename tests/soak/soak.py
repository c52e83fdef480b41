"""Three replicas behind HAProxy, clients in several languages that look at every answer, and an operator who reloads,
unloads, restarts, kills, and lets library calls fail. SOAK_SECONDS says for how long.

replica1 is restarted and killed; replica2 is there from the beginning to the end; so is replica3, and its calls fail,
where the library for that is (tests/preload). What may go wrong, and how often:

    a replica that is killed        loses what it held, and that began before
    a call that is made to fail     costs a request: an error in the form that all have, or the connection
    a model that is unloaded        is 503 model_not_loaded, or loading
    one request in ten              503 busy

Nothing else may. At the end nothing is reserved, descriptors and threads are as many as before, and memory and times
are as they were in the first third.
"""
import contextlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import faults as fault
from cases import Cases
from claims import ATTND, process, run, until
from client import Client
from models import Models
from operate import Operator, value
from rolling import Haproxy, Replica
from tally import Excuse, Tally

SECONDS = float(os.environ.get("SOAK_SECONDS", 15))
HERE = Path(__file__).parent
ASKING = 5  # requests at the same time: two clients in Python, two at once in JavaScript, an example
LONG = SECONDS >= 300  # a short form is warming up all the time, and says nothing of how long answers take
# MiB of resident memory, from the median of the first third to that of the last.
GROWTH = 8 if LONG else 24
BLOCKS = 100  # more than before where calls fail: threads and libraries keep some
# In a long run times may grow by this factor and as many ms more: the machine has other work, too.
SLOWER = ((3, 20), (4, 250))


class Watch:
    """What a replica has. A sample is (MiB resident, descriptors, threads)."""

    def __init__(self, replica):
        self.replica, self.samples = replica, []
        self.first = self.look()

    def look(self):
        at = Path(f"/proc/{self.replica.process.pid}")
        said = dict(re.findall(r"^(VmRSS|Threads):\s*(\d+)", (at / "status").read_text(), re.M))
        return int(said["VmRSS"]) / 1024, len(os.listdir(at / "fd")), int(said["Threads"])

    def memory(self):
        """Medians of the first and the last third, behind a tenth for warming up."""
        warm = [s[0] for s in self.samples[len(self.samples) // 10:]]
        return statistics.median(warm[:len(warm) // 3]), statistics.median(warm[-(len(warm) // 3):])

    def judge(self, limited):
        (was, now), (_, files, threads) = self.memory(), self.look()
        told = (f"{self.replica.name} RSS {was:.1f} -> {now:.1f} MiB, descriptors {self.first[1]} -> {files}, "
                f"threads {self.first[2]} -> {threads}")
        assert files <= self.first[1] and threads <= self.first[2] and (now <= was + GROWTH or not limited), told
        return told


class Soak:
    def __init__(self, folder, stack):
        self.folder, self.stack, self.over, self.clients = folder, stack, threading.Event(), []
        self.models = Models(folder)
        self.cases = Cases(folder / "cases", self.models)
        self.faults = fault.Faults(folder) if fault.LIBRARY.exists() else None
        if self.faults is None:
            print("skipped: soak: failing calls: the library that makes them fail is not part of this build")
        self.log = stack.enter_context(open(folder / "log", "w+"))
        self.replicas = [self.replica(n) for n in (1, 2, 3)]
        self.excuses = {  # the first that fits is it
            "fault": Excuse("lost by calls that fail", lambda e: e.replica in ("replica3", "-") and
                            (e.outcome == "lost" or e.outcome == "refused" and e.detail[0] == "5"),
                            lambda: self.faults.hits if self.faults else 0),
            "kill": Excuse("lost by kills", lambda e: e.replica in ("replica1", "-") and e.outcome == "lost" and
                           e.begun < self.operator.killed + 0.2, lambda: ASKING * self.operator.done["kills"]),
            "unload": Excuse("not loaded", lambda e: e.replica in ("replica2", "-") and e.outcome == "refused" and
                             e.detail in ("503 model_not_loaded", "503 loading")),
            "busy": Excuse("busy", lambda e: (e.outcome, e.detail) == ("refused", "503 busy"),
                           lambda: self.tally.of("right") / 10)}
        stack.enter_context(self.excuses["busy"]())
        self.tally = Tally(list(self.excuses.values()), {c["name"] for c in self.cases.list if c["small"]})

    def replica(self, n):
        more = self.faults.environment if n == 3 and self.faults is not None else {}
        r = Replica(f"replica{n}", *self.models.options(), "--set", "admin.enabled=true", "--set", "memory.budget=64MiB",
                    "--set", f"compute.threads={2 if n == 2 else 1}", "--set", "compute.pin=false", stderr=self.log,
                    env={**os.environ, **more})
        self.stack.callback(r.kill)
        r.start()
        return r

    def come_to_rest(self):
        for r in self.replicas:
            for name in ("attnd_memory_used_bytes", "attnd_requests_waiting", "attnd_requests_running"):
                until(f"{name} of {r.name} is 0", lambda: value(r, name) == 0, 20)
        time.sleep(0.5)

    def in_calm(self):
        """Each request once to each replica: all are answered, and what is made at the first use is there."""
        def tell(outcome, case, begin, replica="-", detail="-"):
            assert outcome in ("right", "expected"), (r.name, case["name"], outcome, detail)

        for r in self.replicas:
            client = Client(f"http://127.0.0.1:{r.port}", self.cases.folder, 0)
            client.tell = tell
            for case in self.cases.list:
                client.ask(case, (self.cases.folder / case["body"]).read_bytes())
            client.close()
        self.come_to_rest()

    def front(self):
        """What clients ask; None when it is a replica itself."""
        if shutil.which("haproxy") is None:
            print("skipped: soak: restarts, kills and failing calls: haproxy is not installed")
            return None
        proxy = Haproxy(self.folder, self.replicas, "\n    http-after-response set-header X-Replica %s\n")
        log = self.stack.enter_context(open(self.folder / "haproxy.log", "w"))
        proxy.process = self.stack.enter_context(process("haproxy", "-db", "-f", str(proxy.file), stdout=log, stderr=log))
        until("all replicas are up", lambda: all(proxy.is_up(r) for r in self.replicas), 60)
        return proxy

    def thread(self, what, *arguments):
        def guarded():
            try:
                what(*arguments)
            except Exception as e:
                self.tally.fail(f"{what.__self__.__class__.__name__}: {e!r}")

        t = threading.Thread(target=guarded, daemon=True)
        t.start()
        return t

    def client(self, language, *words):
        p = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.stack.callback(p.wait)
        self.stack.callback(p.terminate)
        self.clients.append((p, self.thread(self.tally.listen, language, p.stdout)))

    def begin_clients(self, url):
        folder = str(self.cases.folder)
        for seed in ("1", "2"):
            self.client("python", sys.executable, str(HERE / "client.py"), url, folder, seed)
        if shutil.which("node") is not None:
            self.client("javascript", "node", str(HERE / "client.mjs"), url, folder, "3")
        else:
            print("skipped: soak: javascript: node is not installed")
        self.client("examples", "tests/clients/run.sh", str(Path(ATTND).parent), url)

    def go(self):
        self.in_calm()
        watches, blocks = [Watch(r) for r in self.replicas[1:]], self.faults.blocks() if self.faults else 0
        proxy = self.front()
        self.operator = Operator(self.models, self.cases, self.replicas, proxy, self.faults, self.excuses)
        self.begin_clients(proxy.url if proxy is not None else f"http://127.0.0.1:{self.replicas[1].port}")
        threads, begin = [self.thread(self.operator.run, self.over)], time.monotonic()
        if self.faults is not None and proxy is not None:
            threads.append(self.thread(self.faults.run, self.over, self.excuses["fault"]))
        while time.monotonic() < begin + SECONDS and self.tally.failure is None:
            for w in watches:
                w.samples.append(w.look())
            self.over.wait(0.5)
        end = time.monotonic()
        self.over.set()
        for t in threads:
            t.join()
        for p, reader in self.clients:
            p.terminate()
            reader.join()
        if proxy is not None:
            proxy.process.terminate()
            proxy.process.wait()
        return self.verdict(watches, begin, end, blocks)

    def verdict(self, watches, begin, end, blocks):
        failures = [self.tally.failure] if self.tally.failure else []
        failures += ["\n".join([f"{e.seen} {e.what}, at most {e.most()} may be:", *e.events[-20:]])
                     for e in self.excuses.values() if e.seen > e.most()]
        if not failures:
            self.come_to_rest()
            levels = [w.judge(limited=self.faults is not None) for w in watches]
            more_blocks = self.faults.blocks() - blocks if self.faults else 0
            assert more_blocks < BLOCKS, f"{more_blocks} blocks more than before"
            for r in self.replicas:
                r.end()
        self.log.seek(0)
        said = self.log.read()
        if re.search(r"Sanitizer|runtime error:", said):
            failures.append("a sanitizer complained:\n" + said[-5000:])
        if failures:
            raise AssertionError("\n".join(failures))
        return self.summary(levels, self.tally.thirds(begin, end), more_blocks)

    def summary(self, levels, times, more_blocks):
        t, done = self.tally, self.operator.done
        for (was, now), (factor, more) in zip(zip(*times), SLOWER):
            assert not LONG or now <= factor * was + more, times
        languages = ", ".join(f"{name} {n}" for name, n in sorted(t.languages().items()))
        (p50, p99), (later50, later99) = times
        told = [f"{sum(t.counts.values())} requests: {languages}",
                f"{t.of('right')} right, worst error {t.worst:.1g}; {t.of('expected')} wrong ones refused, {t.of('left')} left, "
                f"{t.of('stale')} stale, {self.excuses['busy'].seen} busy",
                f"{done['success']} reloads, {done['failure']} failed ones, "
                f"{done['unloads']} unloads ({self.excuses['unload'].seen} noticed), {done['restarts']} restarts, "
                f"{done['kills']} kills (lost {self.excuses['kill'].seen}, held about {self.operator.held})"]
        if self.faults is not None:
            told.append(f"{self.faults.hits} calls failed (lost {self.excuses['fault'].seen}), {more_blocks:+} blocks")
        return "; ".join([*told, *levels, f"p50 {p50:.1f} -> {later50:.1f} ms, p99 {p99:.1f} -> {later99:.1f} ms"])


def whatever_happens_to_replicas_answers_are_right():
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        return Soak(Path(folder), stack).go()


if __name__ == "__main__":
    sys.exit(run("soak", [whatever_happens_to_replicas_answers_are_right]))
