"""What the tests in this folder share: claims that hold or fail, programs that are started and ended."""
import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import traceback
import urllib.error
import urllib.request

ATTND = os.environ.get("ATTND", "build/attnd")


class Skipped(Exception):
    """Why a claim cannot be looked at here."""


def need(*programs):
    for p in programs:
        if shutil.which(p) is None:
            raise Skipped(f"{p} is not installed")


def run(group, claims):
    """Each claim is a function, named for what it claims. Returns an exit status for the group."""
    failed = 0
    for claim in claims:
        name, begin = claim.__name__.replace("_", " "), time.monotonic()
        try:
            told = claim()
        except Skipped as why:
            print(f"skipped: {group}: {name}: {why}")
        except Exception:
            failed += 1
            print(f"FAIL {group}: {name}")
            print("".join("    " + line + "\n" for line in traceback.format_exc().splitlines()[-30:]), end="")
        else:
            print(f"ok   {group}: {name} ({time.monotonic() - begin:.1f} s{', ' + told if told else ''})")
        sys.stdout.flush()
    return failed != 0


def until(what, condition, seconds=30, pause=0.1):
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(pause)


def get(url, seconds=5):
    """(status, text); status 0 when there was no answer."""
    try:
        with urllib.request.urlopen(url, timeout=seconds) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()
    except OSError as e:
        return 0, str(e)


def metric(url, name):
    """The value of a metric without labels, or with these: name{a="b"}."""
    _, text = get(url + "/metrics")
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)
    return float(found[1]) if found else None


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def command(*words, seconds=120, check=True):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout}")
    return done.stdout.strip()


@contextlib.contextmanager
def process(*words, **options):
    """A process that is gone when the block is left, and so are its own: it is told to end, not killed."""
    p = subprocess.Popen(words, **options)
    try:
        yield p
    finally:
        p.terminate()
        p.wait(30)
