# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The role purelb_install without admission policies, switched off or not supported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from tests.support import ROOT

pytestmark = pytest.mark.timeout(120)


class _WithoutPolicies(BaseHTTPRequestHandler):
    """A fake API server whose admission group serves only webhooks."""

    def do_GET(self) -> None:
        name = "validatingwebhookconfigurations"
        kind = {"name": name, "kind": "ValidatingWebhookConfiguration", "namespaced": False}
        known = self.path == "/apis/admissionregistration.k8s.io/v1"
        body = json.dumps({"resources": [kind]} if known else {"message": "not here"}).encode()
        self.send_response(200 if known else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        pass

    def do_PATCH(self) -> None:
        self.server.written = True  # type: ignore[attr-defined]
        self.do_GET()


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    served = HTTPServer(("127.0.0.1", 0), _WithoutPolicies)
    thread = threading.Thread(target=served.serve_forever)
    thread.start()
    yield served
    served.shutdown()
    thread.join()
    served.server_close()


def install(environ: dict[str, str], **variables: object) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "purelb.purelb.install"]
    return subprocess.run(
        [*command, "-e", json.dumps(variables)],
        cwd=ROOT,
        env={
            **os.environ,
            "ANSIBLE_HOME": str(ROOT / ".ansible"),
            "ANSIBLE_NOCOLOR": "1",
            **environ,
        },
        text=True,
        capture_output=True,
        check=False,
        timeout=100,
    )


def test_cluster_without_policies_is_refused_before_anything_is_applied(
    server: HTTPServer, tmp_path: Path
):
    where = {"server": f"http://127.0.0.1:{server.server_port}"}
    context = {"cluster": "one", "user": "one"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "one", "cluster": where}],
        "users": [{"name": "one", "user": {"token": "x"}}],
        "contexts": [{"name": "one", "context": context}],
        "current-context": "one",
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    done = install({"KUBECONFIG": str(tmp_path / "kubeconfig")})
    said = " ".join(done.stdout.split())
    assert done.returncode != 0
    assert "does not serve ValidatingAdmissionPolicy of admissionregistration.k8s.io/v1" in said
    assert "set purelb_install_admission_policy to false" in said
    assert not hasattr(server, "written")


def test_policies_are_removed_from_a_manifests_folder_when_switched_off(tmp_path: Path):
    (tmp_path / "admissionpolicies.yaml").write_text("# of an earlier run\n")
    settings = {"purelb_install_manifests_dir": str(tmp_path)}
    done = install({}, purelb_install_admission_policy=False, **settings)
    assert done.returncode == 0, done.stdout
    listed = yaml.safe_load((tmp_path / "kustomization.yaml").read_text())["resources"]
    assert {*listed, "kustomization.yaml"} == {path.name for path in tmp_path.glob("*.yaml")}
    assert "admissionpolicies.yaml" not in listed
