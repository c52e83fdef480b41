"""Three daemons behind HAProxy with the shipped configuration, on ports of loopback, under load: one after the other
is restarted, then one is killed."""
import contextlib
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from claims import ATTND, free_port, get, need, process, run, until
from files import nginx_main
from load import Load

REPLICAS = 3


class Replica:
    def __init__(self, name, *options, **how):
        """`how` is what Popen() takes."""
        self.name, self.port, self.process, self.options, self.how = name, free_port(), None, options, how

    def start(self):
        self.process = subprocess.Popen(
            [ATTND, "--listen", f"127.0.0.1:{self.port}", "--set", "log.level=error", "--set", "compute.threads=1",
             "--set", "server.shutdown_delay=2s", *self.options], stdout=subprocess.PIPE, **self.how)
        if not self.process.stdout.readline().startswith(b"attnd ready"):
            raise AssertionError("it does not start")

    def end(self):
        """SIGTERM, as any manager of processes does; how long it took."""
        begin = time.monotonic()
        self.process.terminate()
        code = self.process.wait(30)
        if code != 0:
            raise AssertionError(f"exit {code}")
        return time.monotonic() - begin

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class Haproxy:
    """The shipped file with other ports, and names in place of Docker's. `more` is for its last section."""

    def __init__(self, folder, replicas, more=""):
        self.port, self.metrics = free_port(), free_port()
        text = Path("docker/haproxy.cfg").read_text()
        servers = "\n".join(f"    server {r.name} 127.0.0.1:{r.port}" for r in replicas) + more
        for was, now in (("bind :8080", f"bind 127.0.0.1:{self.port}"),
                         ("bind :8404", f"bind 127.0.0.1:{self.metrics}"),
                         (r"^ *server-template .*$", servers)):
            text, n = re.subn(was, now, text, flags=re.M)
            assert n == 1, was
        self.file = folder / "haproxy.cfg"
        self.file.write_text(text)
        self.url = f"http://127.0.0.1:{self.port}"

    def value(self, name, replica, **labels):
        more = "".join(f',{k}="{v}"' for k, v in labels.items())
        found = re.search(rf'^{name}{{proxy="replicas",server="{replica.name}"{more}}} (\S+)$',
                          get(f"http://127.0.0.1:{self.metrics}/metrics")[1], re.M)
        return float(found[1]) if found else 0.0

    def is_up(self, replica):
        return self.value("haproxy_server_status", replica, state="UP") == 1

    def answered(self, replica):
        return self.value("haproxy_server_http_responses_total", replica, code="2xx")


@contextlib.contextmanager
def three_behind_haproxy():
    need("haproxy")
    replicas = [Replica(f"replica{n}") for n in range(1, REPLICAS + 1)]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        for r in replicas:
            stack.callback(r.kill)
            r.start()
        proxy = Haproxy(Path(folder), replicas)
        with open(Path(folder) / "log", "w") as log:
            stack.enter_context(process("haproxy", "-db", "-f", str(proxy.file), stdout=log, stderr=log))
        until("all replicas are up", lambda: all(proxy.is_up(r) for r in replicas), 60)
        yield replicas, proxy


def nothing_is_lost(load):
    if load.lost() != 0:
        raise AssertionError(f"{load}\n" + "\n".join(load.failures))


def a_rolling_restart_loses_no_request():
    with three_behind_haproxy() as (replicas, proxy), Load(proxy.url) as load:
        load.wait(50)
        took = []
        for r in replicas:
            took.append(r.end())
            r.start()
            until(f"{r.name} is up again", lambda: proxy.is_up(r), 60)
            before = proxy.answered(r)
            until(f"{r.name} is used again", lambda: proxy.answered(r) > before + 5, 60)
        load.wait(50)
    nothing_is_lost(load)
    return f"{load}, {max(took):.1f} s to stop"


def kill_while_it_computes(replica, held):
    """How many requests it held, about: it stands still until no more come, then it is killed."""
    replica.process.send_signal(signal.SIGSTOP)
    looks = [-1, -2]
    while looks[-1] != looks[-2]:
        time.sleep(0.1)
        looks.append(held())
    replica.kill()
    return looks[-1]


def a_killed_replica_loses_at_most_what_it_computed():
    with three_behind_haproxy() as (replicas, proxy), Load(proxy.url, clients=12) as load:
        load.wait(50)
        victim = replicas[1]
        held = kill_while_it_computes(victim, lambda: proxy.value("haproxy_server_current_sessions", victim))
        killed = time.monotonic()
        load.wait(100)
        lost = load.lost()
        victim.start()
        until("it is up again", lambda: proxy.is_up(victim), 60)
        before = proxy.answered(victim)
        until("it is used again", lambda: proxy.answered(victim) > before + 5, 60)
        load.wait(50)
    # What it held were requests of before; one that began after the kill had no reason to be lost.
    if load.lost_from > killed:
        raise AssertionError(f"lost {load.lost_from - killed:.3f} s after the kill: {load}\n" + "\n".join(load.failures))
    return f"{lost} lost, it held about {held:.0f}; {load}"


def nginx_goes_on_when_a_replica_ends():
    need("nginx")
    replicas = [Replica("one"), Replica("two")]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        text, port = Path("docker/nginx.conf").read_text(), free_port()
        for was, r in zip(("127.0.0.1:8081", "127.0.0.1:8082"), replicas):
            stack.callback(r.kill)
            r.start()
            assert was in text
            text = text.replace(was, f"127.0.0.1:{r.port}")
        assert "listen 8080;" in text
        server = Path(folder) / "attnd.conf"
        server.write_text(text.replace("listen 8080;", f"listen 127.0.0.1:{port};"))
        with open(Path(folder) / "log", "w") as log:
            stack.enter_context(process("nginx", "-c", nginx_main(folder, server), stdout=log, stderr=log))
        until("nginx answers", lambda: get(f"http://127.0.0.1:{port}/health/ready")[0] == 200, 60)
        with Load(f"http://127.0.0.1:{port}") as load:
            load.wait(50)
            replicas[0].end()
            load.wait(50)
            replicas[0].start()
            load.wait(50)
            ended, before = load.lost(), load.counts["ok"]
            replicas[1].kill()
            until("the other one serves", lambda: load.counts["ok"] > before + 100, 60)
    if ended != 0 or load.lost() > 8:
        raise AssertionError(f"{ended} lost by an end; {load}\n" + "\n".join(load.failures))
    return f"{load.lost()} lost by a kill; {load}"


if __name__ == "__main__":
    sys.exit(run("processes", [a_rolling_restart_loses_no_request, a_killed_replica_loses_at_most_what_it_computed,
                               nginx_goes_on_when_a_replica_ends]))
