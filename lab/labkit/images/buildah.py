# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Build images from Dockerfiles with buildah, on the lab's bases, without a registry.

buildah runs in a mount namespace of its own, with overlays over the folders that it writes to, so
that it leaves nothing but its storage, which is in the cache. What a build needs from this machine
to reach a package index (CA bundle, pip's settings) is mounted, never copied.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from labkit.errors import Problem, StepFailed
from labkit.host.places import Places
from labkit.host.progress import retry
from labkit.images import bases

_CA_IN_IMAGE = "/etc/ssl/certs/ca-certificates.crt"
_CA_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_PIP_OPTIONS = ("INDEX_URL", "EXTRA_INDEX_URL", "TRUSTED_HOST", "DEFAULT_TIMEOUT", "FIND_LINKS")

_SCRIPT = """
set -e
for path in /run /var/lib /var/cache; do
  folder="$1/overlay$path"; mkdir -p "$folder/up" "$folder/work"
  mount -t overlay overlay -o "lowerdir=$path,upperdir=$folder/up,workdir=$folder/work" "$path"
done
shift; exec "$@"
"""


@dataclass(frozen=True)
class Image:
    """A built image."""

    tag: str
    id: str
    size: str  # as printed by buildah


def build(
    at: Places,
    *,
    tag: str,
    file: Path,
    context: Path,
    arguments: Sequence[str] = (),
    output: Path | None = None,
) -> Image:
    """Build an image; save it as a docker-archive if `output` is given."""
    if not file.is_file():
        raise Problem(f"there is no Dockerfile {file}: name one with --file")
    if not context.is_dir():
        raise Problem(f"there is no folder {context}: name one with --context")
    ensure_bases(at)
    extras = [word for a in arguments for word in ("--build-arg", a)] + mounts(at, os.environ)
    options = ["--isolation", "chroot", "--layers", "--pull-never", "--format", "docker"]
    paths = ["--file", str(file.absolute()), str(context.absolute())]
    retry(lambda: _buildah(at, "build", *options, *extras, "--tag", tag, *paths, quiet=False))
    if output:
        save(at, tag, output)
    return find(at, tag)


def save(at: Places, tag: str, output: Path) -> None:
    """Save an image as a docker-archive, atomically."""
    output = output.absolute()
    output.parent.mkdir(parents=True, exist_ok=True)
    part = output.with_name(f".{output.name}.part")
    part.unlink(missing_ok=True)
    _buildah(at, "push", *_policy(at), tag, f"docker-archive:{part}:{tag}")
    part.rename(output)


def find(at: Places, tag: str) -> Image:
    """Return id and size of an image. Raises Problem if there is none."""
    for image in json.loads(_buildah(at, "images", "--json")):
        if tag in (image.get("names") or []):
            return Image(tag=tag, id=image["id"], size=image["size"])
    raise Problem(f"there is no image {tag}: build it with 'lab image build'")


def ensure_bases(at: Places) -> None:
    """Import the bases into buildah's storage, once for each version of them."""
    for tag in bases.BASES:
        archive = bases.base_build(at, tag).folder / "image.tar"
        if not archive.exists():
            raise Problem(f"image {tag} is not built: run 'lab setup'")
        note = at.cache / "storage" / f"{archive.parent.name}.known"
        if not note.exists():
            _buildah(at, "pull", *_policy(at), f"docker-archive:{archive}")
            note.touch()


def mounts(at: Places, environment: Mapping[str, str]) -> list[str]:
    """Return the options that give RUN steps this machine's access to the package index."""
    options = []
    bundle = next((environment[v] for v in _CA_VARIABLES if environment.get(v)), "")
    if bundle and Path(bundle).is_file():
        options += ["--volume", f"{bundle}:{_CA_IN_IMAGE}:ro"]
    wheels = environment.get("PIP_FIND_LINKS", "")
    if wheels and Path(wheels).is_dir():
        options += ["--volume", f"{wheels}:{wheels}:ro"]
    config = at.cache / "storage" / "pip.conf"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(pip_config(environment))
    return [*options, "--volume", f"{config}:/etc/pip.conf:ro"]


def pip_config(environment: Mapping[str, str]) -> str:
    """Return a pip configuration file with the settings of this machine's PIP_* variables."""
    lines = ["[global]", f"cert = {_CA_IN_IMAGE}", "disable-pip-version-check = true"]
    for option in _PIP_OPTIONS:
        value = environment.get(f"PIP_{option}")
        if value:
            lines.append(f"{option.lower().replace('_', '-')} = {value}")
    return "\n".join(lines) + "\n"


def _policy(at: Places) -> list[str]:
    """Return the option that accepts unsigned archives."""
    path = at.cache / "storage" / "policy.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"default": [{"type": "insecureAcceptAnything"}]}\n')
    return ["--signature-policy", str(path)]


def _buildah(at: Places, *argv: str, quiet: bool = True) -> str:
    folder = at.cache / "storage"
    temporary = folder / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    storage = ["--root", f"{folder}/root", "--runroot", f"{folder}/run", "--storage-driver"]
    wrap = ["unshare", "--mount", "--", "sh", "-c", _SCRIPT, "sh", str(folder)]
    done = subprocess.run(
        [*wrap, "buildah", *storage, "overlay", *argv],
        text=True,
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.PIPE if quiet else None,
        env=os.environ | {"TMPDIR": str(temporary)},
        check=False,
    )
    if done.returncode:
        raise StepFailed(f"buildah {argv[0]}", done.stderr or "see its output above")
    return done.stdout or ""
