"""The manifests are what Kubernetes' own schemas take; no cluster was at hand.

kustomize itself was not run: what it puts together is checked part by part.
"""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from gauss_cdc.config import load
from tests.containers.images import ROOT

FOLDER = ROOT / "docker" / "kubernetes"
KUSTOMIZATION: dict[str, Any] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
OBJECTS = [
    found
    for name in KUSTOMIZATION["resources"]
    for found in yaml.safe_load_all((FOLDER / name).read_text())
]
PROGRAMS = [one for one in OBJECTS if one["kind"] in {"Deployment", "StatefulSet"}]


def test_every_file_is_named_by_the_kustomization() -> None:
    named = {"kustomization.yaml", *KUSTOMIZATION["resources"]}
    named |= {file for one in KUSTOMIZATION["configMapGenerator"] for file in one["files"]}
    assert {path.name for path in FOLDER.iterdir()} == named


@pytest.mark.parametrize("version", ["1.30", kubernetes_validate.latest_version()])
@pytest.mark.parametrize(
    "manifest", OBJECTS, ids=lambda one: f"{one['kind']} {one['metadata']['name']}"
)
def test_a_manifest_is_one_of_its_kind(manifest: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)


def test_programs_are_two_each_without_rights_and_read_secrets_as_root_gave_them() -> None:
    assert {one["metadata"]["name"] for one in PROGRAMS} == {"run", "apply"}
    for one in PROGRAMS:
        pod = one["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert one["spec"]["replicas"] == 2
        assert pod["securityContext"]["runAsNonRoot"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        secret = next(volume["secret"] for volume in pod["volumes"] if "secret" in volume)
        assert secret == {"secretName": "gauss-cdc", "defaultMode": 0o440}
        assert pod["securityContext"]["fsGroup"] == 10001
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert "127.0.0.1:9187" in container[probe]["exec"]["command"][-1]


def test_the_configuration_is_one(tmp_path: Path) -> None:
    text = (FOLDER / "gauss-cdc.toml").read_text()
    for name in ("source", "target"):
        secret = tmp_path / name
        secret.write_text("change-me")
        secret.chmod(0o600)
    file = tmp_path / "gauss-cdc.toml"
    file.write_text(text.replace("/secrets/", f"{tmp_path}/"))

    config = load(file)

    assert config.serve.listen == "127.0.0.1:9187"
