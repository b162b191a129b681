"""What the chart says to the programs, they understand: flags, keys, metrics, reasons."""

import json
import os
import pathlib
import re
import signal
import subprocess
import time
import urllib.request

import pytest
import yaml

from chart import BINARIES, CHART, ROOT, Rendered, objects, one, pods, template

OWN_FLAGS = {"router": "tandem-router", "prefill": "tandem-prefill-worker", "decode": "tandem-decode-worker"}
PROMTOOL = subprocess.run([ROOT / "scripts" / "promtool.sh"], capture_output=True, text=True, check=True).stdout.strip()
MONITORED = ("--set", "monitoring.rules.enabled=true", "--set", "monitoring.dashboard.enabled=true")
METRIC = re.compile(r"\btandem_[a-z_]+\b")


def help_of(*command: str) -> dict[str, bool]:
    """The long flags of a program, and whether each takes a value."""
    program = BINARIES / command[0]
    text = subprocess.run([program, *command[1:], "--help"], capture_output=True, text=True, check=True).stdout
    return {name: bool(value) for name, value in re.findall(r"^(?:  -\w, | {6})--([a-z0-9-]+)( <)?", text, re.MULTILINE)}


def test_flags_exist(documents: list[dict]) -> None:
    """Every argument is one of the program's own, with a value where it takes one."""
    known = {role: help_of(program) for role, program in OWN_FLAGS.items()} | {"test": help_of("tandem", "generate")}
    for document, spec in pods(documents):
        role = document["metadata"]["labels"]["app.kubernetes.io/component"]
        if role not in known:
            continue
        seen = set()
        for arg in spec["containers"][0]["args"]:
            if not arg.startswith("--"):
                continue
            name, given, _ = arg.removeprefix("--").partition("=")
            assert name in known[role], f"{role} has no --{name}"
            assert known[role][name] == bool(given), f"{role}: {arg}"
            assert name not in seen, f"{role}: --{name} is given twice"
            seen.add(name)


def test_values_name_keys_of_the_programs() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]
    pools = schema["pools"]["properties"]
    for role, properties in (
        ("router", schema["router"]), ("prefill", schema["workers"]), ("decode", schema["workers"]),
        ("prefill", pools["prefill"]["items"]), ("decode", pools["decode"]["items"]),
    ):
        keys = properties["properties"]["flags"]["properties"]
        assert keys.keys() <= help_of(OWN_FLAGS[role]).keys()


def test_programs_take_what_they_are_told(documents: list[dict]) -> None:
    """Their own check of their own arguments: the configuration in force, printed."""
    for document, spec in pods(documents):
        role = document["metadata"]["labels"]["app.kubernetes.io/component"]
        if role not in OWN_FLAGS:
            continue
        [container] = spec["containers"]
        args = [arg.replace("$(POD_IP)", "10.0.0.1").replace("$(POD_NAME)", "pod") for arg in container["args"]]
        done = subprocess.run([BINARIES / OWN_FLAGS[role], *args, "--print-config"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        [grace] = [int(arg.partition("=")[2]) for arg in args if arg.startswith("--grace=")]
        assert yaml.safe_load(done.stdout)["grace"] == grace


class Metrics:
    """Of a cluster that has answered a prompt: every metric and its labels."""

    def __init__(self, pages: list[str]) -> None:
        self.labels: dict[str, set[str]] = {}
        for page in pages:
            for name, labels in re.findall(r"^(tandem_\w+)(?:\{(.*)\})? ", page, re.MULTILINE):
                self.labels.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
        # what is only counted once it happens, or with etcd, is known from the tables of the READMEs
        for readme in [*ROOT.glob("*/README.md"), *ROOT.glob("crates/*/README.md")]:
            for name, labels in re.findall(r"^\| `(tandem_\w+)(?:\{(\w+)\})?`", readme.read_text(), re.MULTILINE):
                if labels or readme.parent.name == "discovery":
                    self.labels.setdefault(name, set()).add(labels)


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> Metrics:
    state = tmp_path_factory.mktemp("up") / "state.json"
    command = [BINARIES / "tandem", "up", "--grpc=127.0.0.1:0", "--http=127.0.0.1:0", f"--state={state}"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as up:
        try:
            until = time.monotonic() + 240
            while not state.exists():
                assert up.poll() is None and time.monotonic() < until, "no cluster"
                time.sleep(0.1)
            found = json.loads(state.read_text())
            generate = [BINARIES / "tandem", "generate", f"--url={found['router']['grpc']}", "--max-tokens=4", "a b"]
            subprocess.run(generate, check=True, capture_output=True)
            addresses = [found["router"]["http"], *(worker["http"] for worker in found["workers"])]
            yield Metrics([urllib.request.urlopen(f"http://{a}/metrics").read().decode() for a in addresses])
        finally:
            os.kill(up.pid, signal.SIGTERM)
            up.wait(60)


@pytest.fixture(scope="module")
def monitored() -> list[dict]:
    return objects(template(*MONITORED))


def queries(monitored: list[dict]) -> list[str]:
    """Of the rules and of the dashboard."""
    groups = one(monitored, "PrometheusRule", "tandem")["spec"]["groups"]
    [dashboard] = one(monitored, "ConfigMap", "tandem-dashboard")["data"].values()
    panels = json.loads(dashboard)["panels"]
    return [rule["expr"] for group in groups for rule in group["rules"]] + [
        target["expr"] for panel in panels for target in panel.get("targets", [])
    ]


def test_metrics_exist(monitored: list[dict], metrics: Metrics) -> None:
    scraped = {"namespace", "release", "component", "pool", "pod", "le"}
    texts = queries(monitored) + [(CHART / "files" / "alerts.yaml").read_text()]
    texts += [one(objects(template("--values", ROOT / "helm/tests/values/hpa.yaml")), "HorizontalPodAutoscaler",
                  "tandem-decode-cpu")["spec"]["metrics"][0]["pods"]["metric"]["name"]]
    for text in texts:
        for name in METRIC.findall(text):
            assert name in metrics.labels or f"{name}_sum" in metrics.labels, f"no program has {name}"
    for query in queries(monitored):
        for name, matchers in re.findall(r"(tandem_\w+)\{([^}]*)\}", query):
            used = set(re.findall(r"(\w+)(?:=|!=|=~|!~)\"", matchers))
            assert used <= metrics.labels[name] | scraped, f"{name} has no {used - metrics.labels[name] - scraped}"


def test_outcomes_are_reasons(monitored: list[dict]) -> None:
    reasons = {"finished"} | {r.lower() for r in re.findall(r"^## ([A-Z_]+)$", (ROOT / "docs/errors.md").read_text(), re.MULTILINE)}
    used = {value for query in queries(monitored) for values in re.findall(r'outcome[=!]~?"([^"]*)"', query)
            for value in values.split("|")}
    assert used and used <= reasons


def test_every_query_is_promql(monitored: list[dict], tmp_path: pathlib.Path) -> None:
    """promtool on the rules as they are, and on the dashboard's queries with its variables filled in."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump(one(monitored, "PrometheusRule", "tandem")["spec"]))
    filled = [q.replace("$__rate_interval", "1m").replace("$namespace", "n").replace("$release", "r") for q in queries(monitored)]
    panels = tmp_path / "panels.yaml"
    panels.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": [
        {"record": f"panel:{n}", "expr": query} for n, query in enumerate(filled)]}]}))
    done = subprocess.run([PROMTOOL, "check", "rules", rules, panels], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


BASE = 'namespace="serving",release="tandem"'
ALERTS = {
    "TandemRouterAbsent": [],
    "TandemClientsWithoutWorker": [(f'tandem_router_requests_total{{{BASE},outcome="no_worker"}}', "0+1x90")],
    "TandemTooFewWorkers": [(f'tandem_router_workers{{{BASE},role="decode",pod="r"}}', "0x90"),
                            (f'tandem_router_workers{{{BASE},role="prefill",pod="r"}}', "1x90")],
    "TandemEtcdAway": [(f'tandem_discovery_connected{{{BASE},pod="r"}}', "0x90")],
    "TandemRequestsFail": [(f'tandem_router_requests_total{{{BASE},outcome="finished"}}', "0+90x90"),
                           (f'tandem_router_requests_total{{{BASE},outcome="internal"}}', "0+2x90")],
    "TandemRouterFull": [(f'tandem_router_permits_held{{{BASE},pod="r"}}', "256x90")],
    "TandemPrefillBehind": [(f'tandem_router_queue_seconds_bucket{{{BASE},le="{le}"}}', f"0+{n}x90")
                            for le, n in (("2", 1), ("5", 60), ("+Inf", 60))],
    "TandemFirstTokenSlow": [(f'tandem_router_first_token_seconds_bucket{{{BASE},le="{le}"}}', f"0+{n}x90")
                             for le, n in (("5", 1), ("10", 60), ("+Inf", 60))],
    "TandemTokensSlow": [(f'tandem_router_inter_token_seconds_bucket{{{BASE},le="{le}"}}', f"0+{n}x90")
                         for le, n in (("0.2", 1), ("0.5", 60), ("+Inf", 60))],
    "TandemWorkersDie": [(f"tandem_router_migrations_total{{{BASE}}}", "0+1x90")],
    "TandemStateDamaged": [(f'tandem_transfer_faults_total{{{BASE},kind="corrupt_segment",pod="d"}}', "0x30 1x60")],
    "TandemTransfersBreak": [(f'tandem_transfer_faults_total{{{BASE},kind="link_lost",pod="d"}}', "0+3x90")],
    "TandemCompilesWhileServing": [(f'tandem_engine_compilations_after_ready_total{{{BASE},pod="d"}}', "0x30 1x60")],
    "TandemRoomLeaked": [(f'tandem_pool_slots_held{{{BASE},pod="d"}}', "3x90"),
                         (f'tandem_router_permits_held{{{BASE},pod="r"}}', "0x90")],
}
HEALTHY = [
    (f'tandem_router_permits_held{{{BASE},pod="r"}}', "5x90"),
    (f'tandem_router_workers{{{BASE},role="prefill",pod="r"}}', "1x90"),
    (f'tandem_router_workers{{{BASE},role="decode",pod="r"}}', "1x90"),
    (f'tandem_router_requests_total{{{BASE},outcome="finished"}}', "0+90x90"),
    (f'tandem_router_requests_total{{{BASE},outcome="invalid_field"}}', "0+9x90"),
    (f'tandem_router_queue_seconds_bucket{{{BASE},le="2"}}', "0+60x90"),
    (f'tandem_router_queue_seconds_bucket{{{BASE},le="+Inf"}}', "0+60x90"),
    (f'tandem_pool_slots_held{{{BASE},pod="d"}}', "3x90"),
    (f'tandem_discovery_connected{{{BASE},pod="d"}}', "1x90"),
    (f'tandem_transfer_faults_total{{{BASE},kind="link_lost",pod="d"}}', "1x90"),
    (f"tandem_router_migrations_total{{{BASE}}}", "4x90"),
]


def test_alerts_fire_when_they_should(monitored: list[dict], tmp_path: pathlib.Path) -> None:
    """Each in a cluster with its trouble, and none in a healthy one."""
    rules = one(monitored, "PrometheusRule", "tandem")["spec"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    names = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]
    assert set(names) == set(ALERTS)

    def series(pairs: list[tuple[str, str]]) -> list[dict]:
        return [{"series": name, "values": values} for name, values in pairs]

    counted = 'count(ALERTS{alertname="%s",alertstate="firing"})'
    tests = [{"interval": "1m", "input_series": series(HEALTHY), "promql_expr_test": [
        {"expr": 'count(ALERTS{alertstate="firing"})', "eval_time": "80m", "exp_samples": []}]}]
    tests += [{"interval": "1m", "input_series": series(trouble), "promql_expr_test": [
        {"expr": counted % name, "eval_time": "80m", "exp_samples": [{"value": 1, "labels": "{}"}]}]} for name, trouble in ALERTS.items()]
    (tmp_path / "test.yaml").write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run([PROMTOOL, "test", "rules", "test.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
