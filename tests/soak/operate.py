"""The operator of the soak: reloads, unloads, restarts, kills."""
import collections
import contextlib
import errno
import http.client
import random
import re
import signal
import time

import faults as fault
from claims import get, until
from client import Client
from models import SETS
from rolling import kill_while_it_computes
from tally import LATE

QUESTIONS = {"layer": "numbers", "encoder": "text 0"}  # the case that tells which set of weights is served


def value(replica, name):
    found = re.search(rf"^{re.escape(name)} (\S+)$", get(f"http://127.0.0.1:{replica.port}/metrics")[1], re.M)
    return float(found[1]) if found else 0.0


def ask(replica, path, body, headers):
    connection = http.client.HTTPConnection("127.0.0.1", replica.port, timeout=60)
    with contextlib.closing(connection):
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


def repository(replica, model, what):
    return ask(replica, f"/v2/repository/models/{model}/{what}", b"{}", {"Content-Type": "application/json"})[0]


class Operator:
    """Of replicas whose first may end, and in whose last one calls fail. `proxy` and `faults` may be None."""

    def __init__(self, models, cases, replicas, proxy, faults, excuses):
        self.models, self.replicas, self.proxy, self.faults, self.excuses = models, replicas, proxy, faults, excuses
        self.chance, self.done, self.held = random.Random(1), collections.Counter(), 0
        self.killed = 0.0  # when
        self.served = {model: "a" for model in QUESTIONS}
        self.reader = Client("http://127.0.0.1", cases.folder, 0)
        self.cases = {c["name"]: c for c in cases.list}

    def run(self, over):
        acts = [self.storm, self.broken_files, self.unload]
        if self.faults is not None:
            acts.append(self.broken_disk)
        if self.proxy is not None:
            acts += [self.kill, self.storm, self.restart]
        while True:
            for act in acts:
                if over.wait(0.2 + self.chance.random() * 0.6):
                    return
                act()
            self.chance.shuffle(acts)

    @contextlib.contextmanager
    def in_calm(self, replica):
        """While no call is made to fail."""
        with self.faults.lock if self.faults is not None and replica is self.replicas[-1] else contextlib.nullcontext():
            yield

    def answers(self, replica, model):
        """Which set of weights it serves, or the status that is no answer."""
        case = self.cases[QUESTIONS[model]]
        status, headers, body = ask(replica, case["path"], (self.reader.folder / case["body"]).read_bytes(), case["headers"])
        return SETS[self.reader.which(case, headers, body)[0]] if status == 200 else status

    def must_serve(self, replica, model, name):
        got = self.answers(replica, model)
        if got != name:
            raise AssertionError(f"{replica.name} serves {model} {got}, not {name}")

    def reload(self, replica, signals, result):
        """Sends signals, and waits for a reload with that result and until none is under way: then another load may be."""
        name = f'attnd_reloads_total{{result="{result}"}}'
        before = value(replica, name)
        for _ in range(signals):
            replica.process.send_signal(signal.SIGHUP)
            time.sleep(self.chance.random() * 0.03)
        until(f"{replica.name} has reloaded", lambda: value(replica, name) > before, 60, 0.02)
        until(f"{replica.name} reloads no more", lambda: repository(replica, "demo", "load") != 409, 60, 0.05)
        self.done[result] += int(value(replica, name) - before)

    def storm(self):
        """Other weights, and many signals."""
        replica, model = self.chance.choice(self.replicas), self.chance.choice(list(QUESTIONS))
        name = SETS[1 - SETS.index(self.served[model])]
        with self.in_calm(replica):
            self.models.serve(model, name)
            self.reload(replica, self.chance.randrange(1, 9), "success")
            self.must_serve(replica, model, name)
        self.served[model] = name

    def broken_files(self):
        replica, model = self.chance.choice(self.replicas), self.chance.choice(list(QUESTIONS))
        with self.in_calm(replica):
            old = self.answers(replica, model)
            self.models.serve(model, "broken")
            self.reload(replica, 1, "failure")
            self.must_serve(replica, model, old)
            status = repository(replica, model, "load")
            if status != 500:
                raise AssertionError(f"{replica.name} loads a broken {model}: {status}")
            self.must_serve(replica, model, old)
        self.models.serve(model, self.served[model])
        self.done["failure"] += 1

    def broken_disk(self):
        """Whatever is read fails."""
        replica = self.replicas[-1]
        with self.in_calm(replica):
            old = {model: self.answers(replica, model) for model in QUESTIONS}
            self.faults.set(fault.READ, 0, True, errno.EIO)
            self.reload(replica, 1, "failure")
            self.faults.put(fault.KIND, 0)
            for model, name in old.items():
                self.must_serve(replica, model, name)

    def unload(self):
        replica, model = self.replicas[1], self.chance.choice(list(QUESTIONS))
        with self.excuses["unload"]():
            steps = [repository(replica, model, "unload"), self.answers(replica, model)]
            time.sleep(self.chance.random() / 2)
            steps.append(repository(replica, model, "load"))
        if steps != [200, 503, 200]:
            raise AssertionError(f"unload, ask, load {model} of {replica.name}: {steps}")
        self.must_serve(replica, model, self.served[model])
        self.done["unloads"] += 1

    def restart(self):
        self.replicas[0].end()
        self.back()
        self.done["restarts"] += 1

    def kill(self):
        victim = self.replicas[0]
        with self.excuses["kill"]():
            self.killed = float("inf")
            self.held += int(kill_while_it_computes(
                victim, lambda: self.proxy.value("haproxy_server_current_sessions", victim)))
            self.killed = time.monotonic()
            time.sleep(LATE / 2)
        self.back()
        self.done["kills"] += 1

    def back(self):
        replica = self.replicas[0]
        replica.start()
        until(f"{replica.name} is up again", lambda: self.proxy.is_up(replica), 60)
        before = self.proxy.answered(replica)
        until(f"{replica.name} is used again", lambda: self.proxy.answered(replica) > before + 5, 60)
