"""The image, and one container of it: what it holds, what it may not do, how it ends, how much memory it takes."""
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from claims import ATTND, command, free_port, get, metric, run, until
from engine import HARDENED, IMAGE, Container, compressed_bytes, docker, failed_run, names_in
from load import Load
from mix import Mix, wide_model

MIX_SECONDS = float(os.environ.get("ATTND_MIX_SECONDS", "12"))


def the_image_is_small_and_has_nothing_else_in_it():
    size, names = compressed_bytes(IMAGE), names_in(IMAGE)
    assert size <= 60_000_000, size
    assert "usr/bin/attnd" in names
    programs = [n for n in names if n.startswith(("bin/", "sbin/", "usr/bin/", "usr/sbin/")) and not n.endswith("/")]
    assert programs == ["usr/bin/attnd"], programs
    libraries = {n.split("/")[-1].split(".so")[0] for n in names if ".so" in n}
    assert {"libmicrohttpd", "libjansson", "libopenblas", "libc"} <= libraries, libraries
    licences = {n.split("/")[3] for n in names if n.endswith("/copyright")}
    packages = {n.split("/")[-1] for n in names if n.startswith("var/lib/dpkg/status.d/") and not n.endswith("/")}
    assert packages and licences == packages | {"attnd"}, licences ^ packages
    return f"{size / 1e6:.1f} MB compressed"


def the_image_says_what_it_is():
    config = json.loads(docker("inspect", "-f", "{{json .Config}}", IMAGE))
    label = {k.removeprefix("org.opencontainers.image."): v for k, v in config["Labels"].items()}
    for name in ("title", "description", "source", "version", "revision", "licenses"):
        assert label[name], name
    assert label["title"] == "attnd" and label["licenses"] == "MIT"
    assert label["version"] == command(ATTND, "--version").splitlines()[0].split()[1]
    user, group = config["User"].split(":")
    assert int(user) > 0 and int(group) > 0
    assert config["StopSignal"] == "SIGTERM"
    assert config["Entrypoint"] == ["/usr/bin/attnd"] and not config.get("Cmd")
    assert config["Healthcheck"]["Test"] == ["CMD", "/usr/bin/attnd", "healthcheck"]
    assert list(config["ExposedPorts"]) == ["8080/tcp"]


def it_needs_nothing_and_keeps_to_its_limits():
    with Container(*HARDENED, "--memory", "256m", "--cpus", "1", "--network", "none",
                   "--health-interval", "1s") as c:
        ready = c.event("ready")
        assert ready["threads"] == 1, ready
        assert ready["memory_budget_bytes"] == 128 << 20, ready
        assert ready["url"].endswith(":8080")
        docker("exec", c.id, "/usr/bin/attnd", "healthcheck")
        until("it is healthy", lambda: c.state()["Health"]["Status"] == "healthy", 30, 0.5)


def an_idle_one_ends_at_once():
    took = [] # the best of three, for others may be at work on this machine
    for _ in range(3):
        with Container(*HARDENED, "--network", "none") as c:
            c.event("ready")
            begin = time.monotonic()
            code = c.stop()
            took.append(time.monotonic() - begin)
            assert code == 0, code
    assert min(took) < 1, took
    return f"{min(took) * 1000:.0f} ms to stop"


def it_counts_the_processors_that_it_may_use():
    for options, threads in ((("--cpus", "1.5"), 1), (("--cpuset-cpus", "0"), 1), ((), len(os.sched_getaffinity(0)))):
        with Container(*HARDENED, "--network", "none", *options) as c:
            assert c.event("ready")["threads"] == threads, options


def what_it_cannot_read_is_one_sentence():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        wide_model(Path(folder) / "wide")
        weights = Path(folder) / "wide/model.safetensors"
        weights.chmod(0)
        mount = ("-v", f"{folder}:/models:ro", "--network", "none", *HARDENED)
        for arguments, named in ((("--model", "wide=wide"), ("/models/wide/model.safetensors", "Permission denied")),
                                 (("--model", "x=nowhere"), ("/models/nowhere", "No such file")),
                                 (("--config", "/models"), ("/models", "is a folder"))):
            code, said = failed_run(*mount, arguments=[a.replace("=", "=/models/") if "=" in a else a for a in arguments])
            assert code == 1, (code, said)
            assert len(said.splitlines()) == 1 and all(n.lower() in said.lower() for n in named), said


def a_stop_under_load_loses_no_request():
    """As process 1, on the host's network: what is between a client and a container may lose what it likes. A client
    that asks again on a connection that was idle may find it closed, as with any server."""
    total = 0
    for _ in range(3):
        port = free_port()
        with Container(*HARDENED, "--network", "host", "-e", f"ATTND_SERVER_LISTEN=127.0.0.1:{port}") as c:
            c.event("ready")
            with Load(f"http://127.0.0.1:{port}", clients=24) as load:
                load.wait(100)
                code = c.stop()
            assert code == 0, code
            assert load.lost("unreachable", "stale") == 0, f"{load}\n" + "\n".join(load.failures)
            total += load.counts["ok"]
    return f"{total} answered, none lost"


def no_mixture_of_requests_takes_more_than_it_has():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        wide_model(Path(folder) / "wide")
        command(ATTND, "demo", f"{folder}/demo")
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        with Container(*HARDENED, "--memory", "256m", "--memory-swap", "256m", "--cpus", "1", "--network", "host",
                       "-e", f"ATTND_SERVER_LISTEN=127.0.0.1:{port}", "-v", f"{folder}:/models:ro",
                       arguments=("--model", "wide=/models/wide", "--model", "demo=/models/demo")) as c:
            c.event("ready")
            began, mix = c.state()["StartedAt"], Mix(url)
            counts = mix.for_seconds(MIX_SECONDS)
            state = c.state()
            assert state["Running"] and not state["OOMKilled"] and state["StartedAt"] == began, state
            answered = {what for _, what in counts}
            assert answered <= {"200", "400", "413", "503", "504", "left", "BrokenPipeError", "ConnectionResetError"}, counts
            assert sum(n for (_, what), n in counts.items() if what == "200") > 10, counts
            assert get(url + "/health/ready")[0] == 200
            until("the budget is free again", lambda: metric(url, "attnd_memory_used_bytes") == 0, 10)
            peak = peak_bytes(c)
    return f"{sum(counts.values())} requests, {peak}"


def peak_bytes(container):
    for path in (f"/sys/fs/cgroup/memory/docker/{container.id}/memory.max_usage_in_bytes",
                 f"/sys/fs/cgroup/system.slice/docker-{container.id}.scope/memory.peak",
                 f"/sys/fs/cgroup/docker/{container.id}/memory.peak"):
        if os.path.exists(path):
            return f"{int(Path(path).read_text()) / (1 << 20):.0f} MiB of 256 at the peak"
    return "its peak is not known"


if __name__ == "__main__":
    sys.exit(run("container", [
        the_image_is_small_and_has_nothing_else_in_it, the_image_says_what_it_is,
        it_needs_nothing_and_keeps_to_its_limits, an_idle_one_ends_at_once, it_counts_the_processors_that_it_may_use,
        what_it_cannot_read_is_one_sentence, a_stop_under_load_loses_no_request,
        no_mixture_of_requests_takes_more_than_it_has]))
