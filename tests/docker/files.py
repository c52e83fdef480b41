"""The files of docker/ as those who will read them see them. No daemon runs."""
import json
import re
import sys
import tempfile
import zipfile
from pathlib import Path

from claims import ATTND, Skipped, command, need, run

DOCKER = Path("docker")
WHEELS = Path("build/kubernetes")


def haproxy_takes_its_configuration():
    need("haproxy")
    said = command("haproxy", "-c", "-f", str(DOCKER / "haproxy.cfg"))
    assert "arning" not in said, said


def nginx_takes_its_configuration():
    need("nginx")
    with tempfile.TemporaryDirectory() as folder:
        command("nginx", "-t", "-c", nginx_main(folder, DOCKER / "nginx.conf"))


def nginx_main(folder, server):
    """What Debian's nginx.conf would be, but with every file in the folder."""
    temporary = "".join(f"{k}_temp_path {folder}/{k};" for k in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    path = Path(folder) / "nginx.conf"
    path.write_text(f"daemon off; pid {folder}/pid; error_log stderr; worker_processes 1; events {{}}\n"
                    f"http {{ access_log off; {temporary} include {server.resolve()}; }}\n")
    return str(path)


def prometheus_takes_its_files():
    need("promtool")
    command("promtool", "check", "config", "--syntax-only", str(DOCKER / "prometheus/prometheus.yml"))
    command("promtool", "check", "rules", str(DOCKER / "prometheus/alerts.yml"))


def each_alert_fires_when_it_is_due():
    need("promtool")
    command("promtool", "test", "rules", "tests/docker/alerts_test.yml")
    alerts = re.findall(r"alert: (\w+)", (DOCKER / "prometheus/alerts.yml").read_text())
    tested = (Path("tests/docker/alerts_test.yml")).read_text()
    untested = [a for a in alerts if f'alertname="{a}"' not in tested]
    assert alerts and not untested, untested


def the_dashboard_asks_for_metrics_that_exist():
    readme, panels = Path("README.md").read_text(), json.loads((DOCKER / "grafana/attnd.json").read_text())["panels"]
    for text in [t["expr"] for p in panels for t in p["targets"]] + [(DOCKER / "prometheus/alerts.yml").read_text(),
                                                                     (DOCKER / "prometheus/consoles/attnd.html").read_text()]:
        for name in re.findall(r"\b(?:attnd|process|http_server)_[a-z_]+\b(?=[{%\[)\s])", text):
            base = re.sub(r"_(bucket|count|sum)$", "", name)
            assert f"`{base}`" in readme or f"`{name}`" in readme, f"{name} is not among README's metrics"


def yaml_is_clean():
    need("yamllint")
    rules = ("{extends: default, rules: {line-length: {max: 120}, document-start: disable, "
             "braces: {max-spaces-inside: 1}, comments: {min-spaces-from-content: 1}}}")
    command("yamllint", "-s", "-d", rules, "docker", "tests/docker")


def the_image_says_the_daemons_version():
    version = command(ATTND, "--version").splitlines()[0].split()[1]
    assert f"ARG VERSION={version}\n" in (DOCKER / "Dockerfile").read_text()
    for kind in ("base", "kserve"):
        assert f"newTag: {version}\n" in (DOCKER / "k8s" / kind / "kustomization.yaml").read_text()


def nothing_in_the_image_names_a_processor():
    for name in ("Dockerfile", "rootfs.sh"):
        assert not re.search(r"x86|amd64|arm64|aarch64", (DOCKER / name).read_text()), name


def built(kind):
    """The objects that kustomize makes of a folder."""
    need("kubectl")
    text = command("kubectl", "kustomize", str(DOCKER / "k8s" / kind))
    try:
        import yaml
    except ImportError as e:
        raise Skipped("Python's yaml is not installed") from e
    return {o["kind"]: o for o in yaml.safe_load_all(text)}


class Schemas:
    """Those of Kubernetes 1.30, which the package kubernetes-validate of PyPI holds; it is read as it lies."""

    def __init__(self):
        try:
            import jsonschema
        except ImportError as e:
            raise Skipped("Python's jsonschema is not installed") from e
        self.jsonschema = jsonschema
        if not list(WHEELS.glob("*.whl")):
            try:
                command(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(WHEELS),
                        "kubernetes-validate==1.37.0")
            except AssertionError as e:
                raise Skipped("pip cannot fetch kubernetes-validate") from e
        self.wheel = zipfile.ZipFile(next(WHEELS.glob("*.whl")))
        self.definitions = self.read("_definitions")

    def read(self, name):
        return json.loads(self.wheel.read(f"kubernetes_validate/kubernetes-json-schema/v1.30.0-local-strict/{name}.json"))

    def check(self, o):
        group, version = o["apiVersion"].rpartition("/")[::2]
        name = "-".join(filter(None, (o["kind"].lower(), group.partition(".")[0], version)))
        resolver = self.jsonschema.RefResolver("", self.definitions, store={"_definitions.json": self.definitions})
        self.jsonschema.Draft7Validator(self.read(name), resolver=resolver).validate(o)


def kubernetes_takes_the_manifests():
    objects, schemas = built("prometheus"), Schemas()
    for kind, o in objects.items():
        if kind != "ServiceMonitor": # not one of Kubernetes's own
            schemas.check(o)
    return ", ".join(objects)


def the_manifests_agree_with_each_other():
    o = built("prometheus")
    pod = o["Deployment"]["spec"]["template"]
    labels, spec = pod["metadata"]["labels"], pod["spec"]
    container = spec["containers"][0]
    port = container["ports"][0]
    for selector in (o["Deployment"]["spec"]["selector"], o["PodDisruptionBudget"]["spec"]["selector"],
                     o["NetworkPolicy"]["spec"]["podSelector"], o["ServiceMonitor"]["spec"]["selector"],
                     spec["topologySpreadConstraints"][0]["labelSelector"]):
        assert selector["matchLabels"] == labels, selector
    assert o["Service"]["spec"]["selector"] == labels and o["Service"]["metadata"]["labels"] == labels
    assert o["Service"]["spec"]["ports"][0]["targetPort"] == port["name"] and port["containerPort"] == 8080
    assert o["ServiceMonitor"]["spec"]["endpoints"][0]["port"] == o["Service"]["spec"]["ports"][0]["name"]
    assert o["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == o["Deployment"]["metadata"]["name"]
    assert o["HorizontalPodAutoscaler"]["spec"]["metrics"][0]["pods"]["metric"]["name"] == "attnd_requests_waiting"
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] == port["name"]
    shutdown = {e["name"]: e["value"] for e in container["env"]}["ATTND_SERVER_SHUTDOWN_TIMEOUT"]
    ends_within = container["lifecycle"]["preStop"]["sleep"]["seconds"] + int(shutdown.rstrip("s"))
    assert ends_within < spec["terminationGracePeriodSeconds"], ends_within


def kserve_finds_what_it_looks_for():
    o = built("kserve")
    runtime, model = o["ServingRuntime"]["spec"], o["InferenceService"]["spec"]["predictor"]["model"]
    container = runtime["containers"][0]
    assert o["ServingRuntime"]["apiVersion"] == "serving.kserve.io/v1alpha1"
    assert o["InferenceService"]["apiVersion"] == "serving.kserve.io/v1beta1"
    assert container["name"] == "kserve-container" and container["image"].startswith("attnd:")
    assert "--model_dir=/mnt/models" in container["args"] and "--http_port=8080" in container["args"]
    assert model["runtime"] == o["ServingRuntime"]["metadata"]["name"] and model["protocolVersion"] == "v2"
    assert model["protocolVersion"] in runtime["protocolVersions"]
    assert model["modelFormat"]["name"] in [f["name"] for f in runtime["supportedModelFormats"]]


if __name__ == "__main__":
    sys.exit(run("deployment files", [
        haproxy_takes_its_configuration, nginx_takes_its_configuration, prometheus_takes_its_files,
        each_alert_fires_when_it_is_due, the_dashboard_asks_for_metrics_that_exist, yaml_is_clean,
        the_image_says_the_daemons_version, nothing_in_the_image_names_a_processor,
        kubernetes_takes_the_manifests, the_manifests_agree_with_each_other, kserve_finds_what_it_looks_for]))
