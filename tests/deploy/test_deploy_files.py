"""The files under ``deploy/`` fit together, and their command lines are those of this version.

No image is built here and no cluster is asked. The manifests are compared with the schemas of
Kubernetes.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]  # it has no types
import pytest
import typer
import yaml

from bucketq.broker.broker import DRAIN_S
from bucketq.cli.app import app
from bucketq.cli.parsing import parse_duration
from tests.deploy.promql import parse
from tests.environ import ROOT

DEPLOY = ROOT / "deploy"
BASE = DEPLOY / "kubernetes" / "base"
NAME_LABEL = "app.kubernetes.io/name"
GIVEN = {
    "$(BUCKETQ_URL)": "s3://bucket/jobs/queue.json",
    "${BUCKETQ_URL}": "s3://bucket/jobs/queue.json",
    "${BUCKETQ_WORKER}": "shop.tasks:worker",
}
"""What the environment puts into the command lines."""


def options_of(words: list[str]) -> dict[str, Any]:
    """Parse a command line with the real command; an unknown option is an error."""
    words = [GIVEN.get(word, word.replace("$(POD_IP)", "10.0.0.7")) for word in words]
    command = typer.main.get_command(app)
    found: Any = command.get_command(None, words[0])  # type: ignore[attr-defined]  # it is a group
    options: dict[str, Any] = found.make_context(words[0], words[1:]).params
    return options


def manifests() -> Iterator[dict[str, Any]]:
    for name in yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]:
        yield from yaml.safe_load_all((BASE / name).read_text())


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [each for each in manifests() if each["kind"] == kind]


def test_every_manifest_of_the_folder_is_a_resource() -> None:
    listed = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    assert {path.name for path in BASE.glob("*.yaml")} == {"kustomization.yaml", *listed}
    for each in manifests():
        assert each["apiVersion"]
        assert re.fullmatch(r"bucketq(-\w+)?", each["metadata"]["name"])


@pytest.mark.parametrize("deployment", of_kind("Deployment"), ids=lambda d: d["metadata"]["name"])
def test_pods_are_confined_probed_and_have_time_to_stop(deployment: dict[str, Any]) -> None:
    template = deployment["spec"]["template"]
    pod, (container,) = template["spec"], template["spec"]["containers"]
    chosen = deployment["spec"]["selector"]["matchLabels"]
    assert chosen.items() <= template["metadata"]["labels"].items()
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    options = options_of(container["args"])
    assert options["metrics"] == f"10.0.0.7:{ports['metrics']}"
    assert options["log_format"] == "json"
    scraped = template["metadata"]["annotations"]["prometheus.io/port"]
    assert scraped == str(ports["metrics"])
    for probe in (container["livenessProbe"], container["readinessProbe"]):
        assert probe["httpGet"]["port"] in ports
        assert probe["httpGet"]["scheme"] == "HTTPS"
    drain_s = parse_duration(options["drain"], "--drain") if "drain" in options else DRAIN_S
    assert pod["terminationGracePeriodSeconds"] > drain_s + 10
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted.keys() == {volume["name"] for volume in pod["volumes"]}
    assert options["tls_cert"].parent == Path(mounted["tls"])
    assert pod["serviceAccountName"] in {
        account["metadata"]["name"] for account in of_kind("ServiceAccount")
    }


def test_policies_and_budgets_select_the_deployments() -> None:
    names = {each["metadata"]["name"] for each in of_kind("Deployment")}
    for kind, selector in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector")):
        selected = {each["spec"][selector]["matchLabels"][NAME_LABEL] for each in of_kind(kind)}
        assert selected == names


def test_network_policies_open_the_ports_of_the_pods() -> None:
    for deployment in of_kind("Deployment"):
        (policy,) = (
            each
            for each in of_kind("NetworkPolicy")
            if each["metadata"]["name"] == deployment["metadata"]["name"]
        )
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        opened = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
        assert opened == {port["containerPort"] for port in container["ports"]}


def test_the_scaler_scales_the_workers_by_a_metric() -> None:
    scaler = yaml.safe_load((DEPLOY / "kubernetes" / "keda" / "scaledobject.yaml").read_text())
    names = {each["metadata"]["name"] for each in of_kind("Deployment")}
    assert scaler["spec"]["scaleTargetRef"]["name"] in names
    (trigger,) = scaler["spec"]["triggers"]
    assert parse(trigger["metadata"]["query"]).metrics == {"bucketq_jobs"}


def test_kubernetes_knows_every_field() -> None:
    for each in manifests():
        kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("path", sorted((DEPLOY / "systemd").iterdir()), ids=lambda path: path.name)
def test_units_of_systemd_run_commands_that_exist_and_let_them_end(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    assert [line for line in lines if line.startswith("[")] == ["[Unit]", "[Service]", "[Install]"]
    settings = dict(line.split("=", 1) for line in lines if not line.startswith("["))
    program, *words = shlex.split(settings["ExecStart"])
    assert program == "/opt/bucketq/bin/bucketq"
    options = options_of(words)
    drain_s = parse_duration(options["drain"], "--drain") if "drain" in options else DRAIN_S
    assert float(settings["TimeoutStopSec"]) > drain_s + 10
    assert settings["User"] != "root"
    assert settings["NoNewPrivileges"] == "yes"


def test_the_image_runs_as_a_user_and_gets_signals_itself() -> None:
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    steps = [line.split(maxsplit=1) for line in text.splitlines() if line[:1].isupper()]
    last: dict[str, str] = dict(steps)
    user, _, _ = last["USER"].partition(":")
    assert int(user) > 0
    assert f"--uid {user} " in text
    assert json.loads(last["ENTRYPOINT"]) == ["bucketq"]
    assert options_of(["serve", "memory://x", "--metrics", ":9464"])["metrics"] in text
    assert "HEALTHCHECK" in last
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r'"\.\[([\w,]+)\]"', text)
    assert set(extras.split(",")) <= declared["optional-dependencies"].keys()
    sent = (ROOT / ".dockerignore").read_text().splitlines()
    for words in (words for step, words in steps if step == "COPY" and "--from" not in words):
        for name in words.split()[:-1]:
            assert (ROOT / name).exists()
            assert f"!{name}" in sent
