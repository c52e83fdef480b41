"""The Docker engine as tests use it. What they start carries a label and a name of its own and is gone in the end."""
import contextlib
import json
import os
import re
import subprocess

from claims import command, until

IMAGE = os.environ.get("ATTND_IMAGE", "attnd:test")
HARDENED = ("--read-only", "--user", "12345", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")


def docker(*words, **options):
    return command("docker", *words, **options)


class Container:
    def __init__(self, *options, arguments=()):
        self.id = docker("run", "-d", "--label", "attnd-test", *options, IMAGE, *arguments).splitlines()[-1]

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        docker("rm", "-f", self.id)

    def state(self):
        return json.loads(docker("inspect", "-f", "{{json .State}}", self.id))

    def log(self):
        return docker("logs", self.id)

    def event(self, name):
        """The first line of its log with this event."""
        def find():
            lines = [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]
            return next((line for line in lines if line["event"] == name), None)
        return until(f"{name} in the log of {self.id[:12]}", find)

    def stop(self, seconds=30):
        docker("stop", "-t", str(seconds), self.id)
        return self.state()["ExitCode"]


def failed_run(*options, arguments=()):
    """The exit status and the words of a container that does not start to serve."""
    done = subprocess.run(["docker", "run", "--rm", *options, IMAGE, *arguments], text=True, timeout=60, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout.strip()


def compressed_bytes(image):
    """What is sent over the network for an image, about."""
    return int(command("bash", "-c", f"docker save {image} | gzip -6 | wc -c"))


def leave_swarm():
    docker("swarm", "leave", "--force")
    docker("network", "rm", "docker_gwbridge", check=False)


def is_in_swarm():
    """Whether the engine is part of one; one that a test run left when it was killed is ended."""
    def state():
        return docker("info", "-f", "{{.Swarm.LocalNodeState}}")
    if state() == "active" and "attnd-test" in docker("node", "inspect", "self", "-f", "{{.Spec.Labels}}", check=False):
        leave_swarm()
    return state() != "inactive"


@contextlib.contextmanager
def swarm():
    docker("swarm", "init", "--advertise-addr", "127.0.0.1")
    try:
        docker("node", "update", "--label-add", "attnd-test=yes", docker("node", "ls", "-q"))
        yield
    finally:
        leave_swarm()


def names_in(image):
    """The paths of all files of an image."""
    container = docker("create", image)
    try:
        return re.findall(r"\S+$", command("bash", "-c", f"docker export {container} | tar -t"), re.M)
    finally:
        docker("rm", container)
