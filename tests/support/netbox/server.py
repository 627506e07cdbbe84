# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A real NetBox with PostgreSQL and Redis, in a Debian tree under .cache.

`make netbox` builds the tree once (a few minutes, 1 GB) and runs the tests that need it. NetBox
runs in a PID namespace, so it always ends with this process; its database is kept.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from labkit.images import rootfs
from tests.support import ROOT as CHECKOUT

HERE = CHECKOUT / ".cache/netbox"
ROOT = HERE / "root"
DONE = HERE / "done"
VERSION = "4.7.3"
# NetBox needs a newer Python than that of the lab's Debian.
SUITE = "trixie"
PACKAGES = "python3,python3-venv,ca-certificates,postgresql,redis-server"
# Documentation tools, and packages that need a compiler; psycopg's C library is a wheel.
UNWANTED = ("mkdocs", "zensical", "pymdown", "psycopg")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
ADMIN = "0123456789abcdef0123456789abcdef01234567"
CONFIGURATION = """
ALLOWED_HOSTS = ["*"]
DATABASES = {"default": {"NAME": "netbox", "USER": "postgres", "HOST": "/run/netbox"}}
_REDIS = {"URL": "unix:///run/netbox/redis"}
REDIS = {"tasks": _REDIS, "caching": _REDIS}
SECRET_KEY = "s" * 60
API_TOKEN_PEPPERS = {1: "p" * 60}
CENSUS_REPORTING_ENABLED = False
"""
# Accounts: an administrator, one with the documented permissions, one without permissions.
ACCOUNTS = f"""
import json
from core.models import ObjectType
from users.models import ObjectPermission, Token, User
def account(name, **more):
    return User.objects.get_or_create(username=name, defaults=more)[0]
admin = account("admin", is_superuser=True)
Token.objects.all().delete()
Token(user=admin, version=1, token="{ADMIN}").save()
purelb, powerless = account("purelb"), account("powerless")
for model, actions in (("ipaddress", ["view", "change"]), ("tenant", ["view"])):
    permission = ObjectPermission.objects.get_or_create(
        name=f"purelb {{model}}", defaults={{"actions": actions}})[0]
    permission.object_types.set(ObjectType.objects.filter(model=model))
    permission.users.set([purelb])
tokens = {{"old": "a" * 40, "powerless": "b" * 40}}
for user, text in ((purelb, tokens["old"]), (powerless, tokens["powerless"])):
    Token(user=user, version=1, token=text).save()
new = Token(user=purelb, version=2)
new.save()
tokens["new"] = f"nbt_{{new.key}}.{{new.token}}"
open("/run/netbox/tokens", "w").write(json.dumps(tokens))
"""
START = """
set -e
mount -t proc proc /proc
mkdir -p /run/netbox && chown postgres /run/netbox && rm -f /run/netbox/* /opt/pg/postmaster.pid
redis-server --port 0 --unixsocket /run/netbox/redis --save '' --appendonly no >/dev/null &
bin=$(echo /usr/lib/postgresql/*/bin)
as="setpriv --reuid postgres --regid postgres --clear-groups"
[ -d /opt/pg ] || { install -d -o postgres /opt/pg
    $as $bin/initdb -D /opt/pg -A trust --locale C.UTF-8 >/dev/null; }
$as $bin/pg_ctl -D /opt/pg -o "-h '' -k /run/netbox" -w -l /dev/null start >/dev/null
$as createdb -h /run/netbox netbox 2>/dev/null || true
export PYTHONPATH=/opt/nb NETBOX_CONFIGURATION=nb_configuration
[ -e /opt/pg-done ] || { /opt/netbox/bin/netbox migrate -v 0 && touch /opt/pg-done; }
/opt/netbox/bin/netbox shell -v 0 -c "$(cat /opt/nb/accounts.py)"
exec /opt/netbox/bin/gunicorn --workers 2 --bind "$1" --log-level warning netbox.wsgi
"""


@dataclass(frozen=True)
class NetBoxServer:
    """The URL of NetBox, and its tokens: `old` and `new` are formats, `powerless` an account."""

    url: str
    tokens: dict[str, str]

    def request(self, method, path, body=None, token=ADMIN):
        """Send a request, by default as the administrator; return the parsed answer."""
        request = urllib.request.Request(
            f"{self.url}/api/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Token {token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or "null")


def build():
    """Build the tree, unless it exists."""
    if DONE.exists():
        return
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir(parents=True)
    run("unshare", "--mount", "debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE,
        str(ROOT), rootfs.mirror())  # fmt: skip
    shutil.copy(CERTIFICATES, ROOT / CERTIFICATES.relative_to("/"))
    in_root("python3 -m venv /opt/netbox")
    pip = f"PIP_CERT={CERTIFICATES} /opt/netbox/bin/pip install --quiet --no-cache-dir"
    in_root(f"{pip} --no-deps netbox=={VERSION}")
    needed = [
        text.split(": ", 1)[1]
        for text in next(ROOT.glob("opt/netbox/lib/*/site-packages/netbox-*/METADATA"))
        .read_text()
        .splitlines()
        if text.startswith("Requires-Dist: ") and ";" not in text
    ]
    (ROOT / "opt/requirements.txt").write_text(
        "\n".join([*(n for n in needed if not n.startswith(UNWANTED)), "psycopg[binary,pool]"])
    )
    in_root(f"{pip} --requirement /opt/requirements.txt")
    DONE.touch()


def run(*argv):
    """Run a step; print the end of its output if it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(argv[:4])} failed:\n{(done.stdout + done.stderr)[-3000:]}")


def in_root(command):
    """Run a command in the tree."""
    run("chroot", str(ROOT), "/bin/sh", "-c", command)


def write_configuration():
    """Write the configuration and the start script."""
    folder = ROOT / "opt/nb"
    folder.mkdir(exist_ok=True)
    (folder / "nb_configuration.py").write_text(CONFIGURATION)
    (folder / "accounts.py").write_text(textwrap.dedent(ACCOUNTS))
    (folder / "start").write_text(START)


def free_port(host):
    """Return a free port."""
    with socket.create_server((host, 0)) as server:
        return server.getsockname()[1]


@contextmanager
def running(host="127.0.0.1", *, seconds=900):
    """Run NetBox on an address of this machine; its first run creates the database."""
    write_configuration()
    bind = f"{host}:{free_port(host)}"
    # Killing `unshare` kills the first process of the PID namespace, and with it all others.
    argv = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "chroot", str(ROOT)]
    with (HERE / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [*argv, "/bin/sh", "/opt/nb/start", bind], stdout=log, stderr=log, stdin=-3
        )
    try:
        yield _ready(process, f"http://{bind}", time.monotonic() + seconds)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _ready(process, url, deadline):
    while time.monotonic() < deadline and process.poll() is None:
        try:
            server = NetBoxServer(url, {})
            server.request("GET", "status/")
        except urllib.error.HTTPError:
            raise
        except OSError:
            time.sleep(0.2)
            continue
        tokens = json.loads((ROOT / "run/netbox/tokens").read_text())
        return NetBoxServer(url, tokens)
    raise RuntimeError(f"NetBox did not start: see {HERE / 'server.log'}")


if __name__ == "__main__":
    if sys.argv[1:] != ["build"] or os.geteuid():
        raise SystemExit(f"as root: python {sys.argv[0]} build")
    build()
    print("starting NetBox once to create its database (minutes)", flush=True)
    with running():
        pass
