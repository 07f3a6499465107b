"""What installs Ketch in other places is right as far as that can be seen here: linters, schemas, names of settings."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from ketch.configs.settings import Settings

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(sysconfig.get_path("scripts"))
UNIT = ROOT / "deploy" / "ketch.service"
MANIFESTS = ROOT / "deploy" / "kubernetes"
LIMIT = 60


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, env=environment or None)


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text()))


def resources() -> Iterator[dict[str, Any]]:
    for path in sorted(MANIFESTS.glob("*.yaml")):
        if path.name != "kustomization.yaml":
            yield from documents(path)


def resource(kind: str) -> dict[str, Any]:
    return next(found for found in resources() if found["kind"] == kind)


def brokers() -> dict[str, Any]:
    pod: dict[str, Any] = resource("StatefulSet")["spec"]["template"]["spec"]
    return pod


# -- settings


def test_variables_are_settings() -> None:
    named = re.findall(r"\bKETCH_([A-Z_]+)=", (ROOT / "Dockerfile").read_text().partition("\nFROM ${BASE}\n")[2])
    named += re.findall(r"^Environment=KETCH_(\w+)=", UNIT.read_text(), re.MULTILINE)
    (container,) = brokers()["containers"]
    named += [one["name"].removeprefix("KETCH_") for one in container["env"] if one["name"].startswith("KETCH_")]
    assert len(named) > 8
    assert {name.lower() for name in named} - set(Settings.model_fields) == set()


def test_the_config_map_is_a_file_of_settings() -> None:
    text = resource("ConfigMap")["data"]["ketch.toml"]
    for setting in (text, text.replace("# min_", "min_")):
        Settings(**tomllib.loads(setting))


# -- the image


def test_the_dockerfile_has_no_complaints() -> None:
    done = run(SCRIPTS / "hadolint", ROOT / "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")


def test_the_context_has_what_the_image_is_made_of() -> None:
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    allowed = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert sorted(" ".join(copied).split()) == sorted(allowed)
    assert [name for name in allowed if not (ROOT / name).exists()] == []


# -- the service


needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing")


@needs_systemd
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """With a program that is there in the place of /opt/ketch, which systemd looks for."""
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/ketch/bin/ketch", str(SCRIPTS / "ketch")))
    done = run("systemd-analyze", "verify", "--recursive-errors=no", unit)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs_systemd
def test_the_unit_is_hardened() -> None:
    """systemd's own measure, from 0 to 10: below 2.0, where it begins to say "OK"."""
    done = run("systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", UNIT)
    assert done.returncode == 0, done.stdout


# -- Kubernetes


@pytest.mark.parametrize("version", ["1.31", kubernetes_validate.latest_version()])
def test_the_manifests_fit_the_schemas(version: str) -> None:
    found = list(resources())
    assert {one["kind"] for one in found} >= {"StatefulSet", "Service", "ConfigMap", "PodDisruptionBudget"}
    for one in found:
        kubernetes_validate.validate(one, version, strict=True)


def test_the_manifests_fit_each_other() -> None:
    listed = documents(MANIFESTS / "kustomization.yaml")[0]["resources"]
    assert sorted([*listed, "kustomization.yaml"]) == sorted(path.name for path in MANIFESTS.iterdir())

    brokers_set, pod = resource("StatefulSet")["spec"], brokers()
    (container,) = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    settings = tomllib.loads(resource("ConfigMap")["data"]["ketch.toml"])
    assert ports == {"kafka": settings["port"], "http": settings["http_port"]}
    services = {one["metadata"]["name"]: one["spec"] for one in resources() if one["kind"] == "Service"}
    assert brokers_set["serviceName"] in services
    labels = brokers_set["template"]["metadata"]["labels"]
    for selector in (brokers_set["selector"]["matchLabels"], *(service["selector"] for service in services.values())):
        assert selector.items() <= labels.items()
    for service in services.values():
        assert {port["targetPort"] for port in service["ports"]} <= set(ports)
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    user = re.search(r"^USER (\d+):(\d+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert user is not None
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]) == tuple(map(int, user.groups()))


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is missing")
def test_kubectl_takes_the_kustomization() -> None:
    done = run("kubectl", "kustomize", MANIFESTS)
    assert (done.returncode, done.stderr) == (0, "")
    made = list(yaml.safe_load_all(done.stdout))
    assert {one["metadata"].get("namespace", "ketch") for one in made} == {"ketch"}
    assert len(made) == len(list(resources()))


# -- wheels


@pytest.mark.parametrize(
    ("platform", "suffixes"),
    [("linux", {"manylinux_x86_64", "manylinux_aarch64"}), ("macos", {"macosx_x86_64", "macosx_arm64"})],
)
def test_wheels_are_built_for(platform: str, suffixes: set[str]) -> None:
    """Each Python that the classifiers name, on each kind of machine, as cibuildwheel understands its table."""
    done = run(SCRIPTS / "cibuildwheel", "--platform", platform, "--print-build-identifiers", ROOT)
    assert done.returncode == 0, done.stderr
    found = set(done.stdout.split())
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    versions = [name.rpartition(" ")[2] for name in classifiers if re.search(r":: 3\.\d+$", name)]
    assert found == {f"cp{version.replace('.', '')}-{suffix}" for version in versions for suffix in suffixes}
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in versions
