"""The compose file and the Swarm stack, with Debian's HAProxy and Prometheus in place of the official images."""
import contextlib
import json
import os
import re
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path

from claims import Skipped, command, free_port, get, need, run, until
from engine import IMAGE, docker, is_in_swarm, swarm
from load import Load

IMAGES = {"ATTND_IMAGE": IMAGE, "HAPROXY_IMAGE": "attnd-test/haproxy", "PROMETHEUS_IMAGE": "attnd-test/prometheus",
          "ATTND_MEMORY": "256m", "ATTND_CPUS": "1"}


def compose(*words, **more):
    need("docker-compose")
    done = subprocess.run(["docker-compose", "-p", "attnd-test", "-f", "docker/compose.yml", *words], text=True,
                          timeout=120, check=False, env={**os.environ, **IMAGES, **more},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise AssertionError(f"docker-compose {' '.join(words)}: {done.stdout}")
    return done.stdout


def backends(metrics_url):
    """How many servers HAProxy finds ready."""
    return len(re.findall(r'^haproxy_server_status{proxy="replicas",server="[^"]*",state="UP"} 1$',
                          get(metrics_url + "/metrics")[1], re.M))


def query(prometheus, expression):
    status, text = get(f"{prometheus}/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
    if status != 200:
        raise AssertionError(f"{expression}: {status} {text}")
    return json.loads(text)["data"]["result"]


def dashboard():
    """The expressions of its panels."""
    for panel in json.loads(Path("docker/grafana/attnd.json").read_text())["panels"]:
        for target in panel["targets"]:
            yield target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")


@contextlib.contextmanager
def composed():
    at = {name: f"127.0.0.1:{free_port()}" for name in ("ATTND_ADDRESS", "HAPROXY_ADDRESS", "PROMETHEUS_ADDRESS")}
    try:
        compose("up", "-d", "--no-build", "--scale", "attnd=2", **at)
        yield {name: f"http://{a}" for name, a in at.items()}
    finally:
        compose("down", "-v", "-t", "5", **at)


def the_compose_file_comes_up_and_the_dashboards_show_it():
    with composed() as at:
        until("both replicas are in use", lambda: backends(at["HAPROXY_ADDRESS"]) == 2, 60)
        prometheus = at["PROMETHEUS_ADDRESS"]
        with Load(at["ATTND_ADDRESS"], clients=4, pause=0.02) as load:
            until("Prometheus sees both", lambda: len(query(prometheus, 'up{job="attnd"} == 1')) == 2, 30, 0.5)
            asked = list(dashboard())
            # What was never turned away has no series.
            until("every panel shows something", lambda: all("> 0" in e or query(prometheus, e) for e in asked), 60, 1)
        if load.lost() != 0:
            raise AssertionError(f"{load}\n" + "\n".join(load.failures))
        status, page = get(prometheus + "/consoles/attnd.html")
        assert status == 200 and page.count(">ready<") == 2, page
        assert query(prometheus, 'up{job="haproxy"} == 1') and not query(prometheus, 'ALERTS{alertstate="firing"}')
    return f"{load}, {len(asked)} expressions"


HTTP, HAPROXY = "http://127.0.0.1:8080", "http://127.0.0.1:8404"


def running():
    """The containers of the replicas."""
    return docker("ps", "-q", "--no-trunc", "--filter", "label=com.docker.swarm.service.name=attnd_attnd").split()


@contextlib.contextmanager
def deployed():
    if os.environ.get("ATTND_TEST_SWARM") != "yes":
        raise Skipped("this engine was running before; ATTND_TEST_SWARM=yes makes it a swarm for a while")
    if is_in_swarm():
        raise Skipped("this engine is part of a swarm")
    for k, v in IMAGES.items():
        os.environ[k] = v
    with swarm():
        docker("stack", "deploy", "--resolve-image", "never", "-c", "docker/stack.yml", "attnd")
        try:
            until("three replicas are in use", lambda: backends(HAPROXY) == 3, 60)
            yield
        finally:
            docker("stack", "rm", "attnd")
            of_the_stack = ("--filter", "label=com.docker.stack.namespace=attnd")
            until("all has ended", lambda: not docker("ps", "-q", *of_the_stack), 60)
    for kind, words in (("container", ("rm", "-f")), ("volume", ("rm",))):
        left = docker(kind, "ls", "-q", *(("-a",) if kind == "container" else ()), *of_the_stack).split()
        if left:
            docker(kind, *words, *left)


def update(*words):
    """A rolling update to its end."""
    begin = time.monotonic()
    said = docker("service", "update", "--detach=false", "--quiet", *words, "attnd_attnd", seconds=180)
    return time.monotonic() - begin, said


def a_swarm_rolls_and_loses_no_request():
    with deployed():
        with Load(HTTP) as load:
            load.wait(50)
            before = running()
            took, _ = update("--force")
            assert not set(before) & set(running()), "a replica of before is still there"
            load.wait(50)
        rolled = str(load)
        if load.lost() != 0:
            raise AssertionError(f"{load}\n" + "\n".join(load.failures))

        clients = 12
        with Load(HTTP, clients=clients) as load:
            load.wait(50)
            victim = running()[0]
            command("docker", "kill", "-s", "KILL", victim)
            until("another stands in for it", lambda: len(running()) == 3 and victim not in running(), 60)
            until("it is used", lambda: backends(HAPROXY) == 3, 60)
            load.wait(50)
            begin = time.monotonic()
        waited = time.monotonic() - begin
        assert waited < 30, f"{waited:.0f} s until the last client had an answer"
        # A replica can hold what clients wait for; more than that would be requests that came after the kill.
        assert load.lost() <= clients, f"{load}\n" + "\n".join(load.failures)
    return f"update of 3 in {took:.0f} s: {rolled}; killed one: {load}"


if __name__ == "__main__":
    sys.exit(run("compose and swarm", [the_compose_file_comes_up_and_the_dashboards_show_it,
                                       a_swarm_rolls_and_loses_no_request]))
