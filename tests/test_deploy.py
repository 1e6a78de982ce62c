"""What is in ``deploy``: the services are the processes of a cluster, and every command is one that exists."""

import configparser
import importlib.metadata
import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import typer
from packaging.requirements import Requirement

from pixiu.cli.main import app
from pixiu.cli.role import ROLES
from pixiu.config import load_settings, parse_assignment
from pixiu.config.cluster import read_cluster_file
from pixiu.config.registry import RegistryAddress
from pixiu.model.errors import ConfigError
from tools import make_compose, pinned
from tools.generated import ROOT

yaml = pytest.importorskip("yaml")

DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = sorted(name for name, service in SERVICES.items() if service["image"] == "pixiu")

USAGE = typer.BadParameter.__mro__[1]
"""What a command line that makes no sense raises, option or value."""
SERVICE_KEYS = {
    "image", "build", "restart", "command", "entrypoint", "environment", "volumes", "networks", "ports", "secrets",
    "depends_on", "healthcheck", "read_only", "tmpfs", "cap_drop", "security_opt", "stop_grace_period", "ulimits",
}  # fmt: skip
"""Of those that the Compose Specification knows, the ones that are used here."""


def parsed(arguments: list[str]) -> dict[str, Any]:
    """What the real command line makes of arguments; raises where it would print its usage. Nothing is run."""
    group: Any = typer.main.get_command(app)
    context = group.make_context("pixiu", [], resilient_parsing=True)
    name, command, rest = group.resolve_command(context, list(arguments))
    if command is None:
        raise ConfigError(f"there is no verb {arguments[0]!r}")
    with command.make_context(name, list(rest), parent=context) as found:
        values = dict(found.params)
    settings = load_settings(overrides=dict(parse_assignment(each) for each in values.get("assignments") or ()))
    return {"verb": name, "settings": settings, **values}


def test_the_file_is_up_to_date_and_reads_as_it_was_meant() -> None:
    assert make_compose.main(["--check"]) == 0, "run: make docs"
    cluster = read_cluster_file(make_compose.CLUSTER)
    assert json.loads(json.dumps(make_compose.compose(cluster))) == COMPOSE


def test_every_process_of_the_cluster_is_a_service() -> None:
    cluster = read_cluster_file(make_compose.CLUSTER)
    expected = {f"zookeeper-{number}" for number in range(1, cluster.zookeeper_nodes + 1)} | {"keys"}
    for plan in cluster.roles:
        expected |= {f"{plan.role}-{k}-{r}" for k in range(plan.partitions) for r in range(plan.replicas)}
    assert SERVICES.keys() == expected
    roles = [SERVICES[name]["command"][1] for name in OURS if SERVICES[name]["command"][0] == "role"]
    assert {"shard", "proxy", "broker", "router", "gateway"} <= set(roles) <= ROLES.keys()
    assert roles.count("shard") == 3


def test_engines_of_the_file_are_those_of_the_services() -> None:
    """A log in Kafka that only the file knew of would be a journal in the containers."""
    cluster = read_cluster_file(make_compose.CLUSTER)
    log = "kafka://kafka:9092?prefix=talk"
    found = make_compose.services(replace(cluster, engines=replace(cluster.engines, log=log)))
    told = {name for name, service in found.items() if service.get("environment", {}).get("PIXIU_ENGINES__LOG") == log}
    assert told == {"shard-0-0", "shard-0-1", "shard-0-2"}


@pytest.mark.parametrize("name", [name for name in OURS if name != "keys"])
def test_the_real_command_line_takes_every_command(name: str) -> None:
    service = SERVICES[name]
    address = service["networks"]["cluster"]["ipv4_address"]
    values = parsed(service["command"])
    assert str(values["data"]) == make_compose.DATA
    if values["verb"] == "serve":
        assert values["settings"].http.host == address, "--dev is for loopback"
        assert not values["dev"]
        return
    assert (values["verb"], values["name"]) == ("role", name.partition("-")[0])
    assert values["bind"] == address, "what it registers is what the others reach"
    assert str(values["secret_file"]) == make_compose.SECRET
    assert service["secrets"] == ["cluster"]
    hosts = RegistryAddress.parse(values["registry"]).hosts.split(",")
    assert [host.partition(":")[0] for host in hosts] == [each for each in SERVICES if each.startswith("zookeeper")]
    if values["name"] == "shard":
        assert values["settings"].replication.name == name
    else:
        assert f":{values['settings'].links.admin_port}/readyz" in service["healthcheck"]["test"][-1]


def test_commands_that_do_not_exist_are_noticed() -> None:
    good = SERVICES["broker-0-0"]["command"]
    for bad in (["rolle"], [*good, "--no-such-option"], [*good, "--port", "x"], [*good, "--set", "links.nothing=1"]):
        with pytest.raises((ConfigError, USAGE)):
            parsed(bad)


def test_the_structure_is_what_compose_expects() -> None:
    assert COMPOSE.keys() == {"name", "services", "networks", "volumes", "secrets"}
    assert re.fullmatch("[a-z0-9][a-z0-9_-]*", COMPOSE["name"])
    (network,) = COMPOSE["networks"].values()
    subnet = ip_network(network["ipam"]["config"][0]["subnet"])
    addresses, ports, volumes = [], [], set()
    for name, service in SERVICES.items():
        assert service.keys() <= SERVICE_KEYS, name
        assert re.fullmatch("[a-zA-Z0-9._-]+", name)
        networks = service["networks"]
        assert set(networks) <= COMPOSE["networks"].keys()
        addresses += [each["ipv4_address"] for each in networks.values()] if isinstance(networks, dict) else []
        ports += [each.partition(":")[0] for each in service.get("ports", ())]
        volumes |= {each.partition(":")[0] for each in service["volumes"]}
        assert set(service.get("secrets", ())) <= COMPOSE["secrets"].keys()
        for other, wait in service.get("depends_on", {}).items():
            condition = "service_completed_successfully" if other == "keys" else "service_healthy"
            assert wait == {"condition": condition}
            assert other == "keys" or "healthcheck" in SERVICES[other]
        if name != "keys":
            check = service["healthcheck"]
            assert check["test"][0] == "CMD"
            assert all(re.fullmatch("[0-9]+s", check[key]) for key in ("interval", "timeout", "start_period"))
    assert len(set(addresses)) == len(addresses) == len(OURS) - 1
    assert all(ip_address(each) in subnet for each in addresses)
    assert len(set(ports)) == len(ports)
    assert volumes == COMPOSE["volumes"].keys()


@pytest.mark.parametrize("name", OURS)
def test_a_container_may_do_no_more_than_it_must(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["build"]["dockerfile"] == "deploy/Containerfile"
    test = service.get("healthcheck", {"test": ["", "pass"]})["test"]
    compile(test[-1], name, "exec")


def test_the_key_that_signs_tokens_is_made_once(tmp_path: Path) -> None:
    service = SERVICES["keys"]
    script = service["command"][0]
    assert parsed(shlex.split(script)[shlex.split(script).index("pixiu") + 1 :])["verb"] == "token"
    here = script.replace(make_compose.DATA, str(tmp_path)).replace("pixiu", f"{sys.executable} -m pixiu")
    keys = []
    for _ in range(2):
        subprocess.run([*service["entrypoint"], here], check=True, capture_output=True)
        keys.append(sorted(path.name for path in (tmp_path / "keys").iterdir()))
    assert keys[0] == keys[1]
    assert len(keys[0]) == 1


# The image.


def instructions() -> list[tuple[str, str]]:
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    lines = re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", text)).splitlines()
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines if line.strip()]


def test_the_image_is_pinned_small_and_not_run_by_root() -> None:
    found = instructions()
    assert [rest.split()[0] for word, rest in found if word == "FROM"] == ["debian:bookworm-slim"] * 2
    names = [word for word, _ in found]
    last = dict(found)
    assert last["USER"] == "pixiu"
    assert names.index("USER") > len(names) - 1 - names[::-1].index("FROM")
    assert last["VOLUME"] == make_compose.DATA
    installs = [rest for word, rest in found if word == "RUN" and "pip install" in rest]
    assert "--require-hashes" in installs[0]
    assert "--no-deps" in installs[1]
    for path in re.findall(r"-r (\S+)", installs[0]):
        assert path == "extras.txt" or (ROOT / path).is_file()
    ignored = (DEPLOY / "Containerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    for word, rest in found:
        if word == "COPY" and not rest.startswith("--from"):
            for path in rest.split()[:-1]:
                assert (ROOT / path).exists(), path
                assert f"!{path}" in ignored, path


def test_what_the_image_runs_is_a_command() -> None:
    last = dict(instructions())
    assert json.loads(last["ENTRYPOINT"]) == ["/opt/pixiu/bin/pixiu"]
    values = parsed(json.loads(last["CMD"]))
    assert (values["verb"], str(values["data"]), values["no_pipeline"]) == ("serve", make_compose.DATA, True)
    probe = json.loads(last["HEALTHCHECK"].partition("CMD")[2])
    assert probe[0] == make_compose.PYTHON
    assert f":{values['settings'].http.port}/readyz" in probe[-1]
    compile(probe[-1], "HEALTHCHECK", "exec")


def test_the_extras_are_pinned_with_all_that_they_need() -> None:
    found = pinned.extras()
    base = pinned.entries((ROOT / "requirements" / "base.txt").read_text(encoding="utf-8"))
    assert {"kazoo", "httpx", "h2", "grpcio", "valkey"} <= found.keys()
    assert not {"pytest", "mypy", "playwright", "ruff"} & found.keys()
    for name, entry in found.items():
        assert "--hash=sha256:" in entry, name
        try:
            needs = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # not for this Python
        for need in map(Requirement, needs):
            if need.marker is None or need.marker.evaluate({"extra": "http2" if name == "httpx" else ""}):
                assert pinned.normal(need.name) in found.keys() | base.keys(), f"{name} needs {need}"


# systemd.


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((DEPLOY / "systemd" / name).read_text(encoding="utf-8"))
    return parser


def test_a_role_as_a_service_of_the_machine_is_a_command() -> None:
    service = unit("pixiu-role@.service")["Service"]
    text = (DEPLOY / "systemd" / "role.env").read_text(encoding="utf-8")
    given = dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))
    given.setdefault("DATA", service["Environment"].removeprefix("DATA="))
    line = re.sub(r"\$\{?(\w+)\}?", lambda match: given[match[1]], service["ExecStart"])
    values = parsed(shlex.split(line)[1:])
    assert (values["verb"], values["name"], values["bind"]) == ("role", given["ROLE"], given["BIND"])
    assert values["name"] in ROLES
    assert str(values["data"]) == f"/var/lib/{service['StateDirectory']}"
    assert str(values["secret_file"]) == "%d/" + service["LoadCredential"].partition(":")[0]


def test_a_node_as_a_service_of_the_machine_is_a_command() -> None:
    service = unit("pixiu.service")["Service"]
    assert parsed(shlex.split(service["ExecStart"])[1:])["verb"] == "serve"


@pytest.mark.parametrize("name", ["pixiu.service", "pixiu-role@.service"])
def test_services_are_run_by_nobody_special_and_stopped_in_peace(name: str) -> None:
    service = unit(name)["Service"]
    assert (service["User"], service["NoNewPrivileges"], service["ProtectSystem"]) == ("pixiu", "yes", "strict")
    assert int(service["TimeoutStopSec"]) >= 30
