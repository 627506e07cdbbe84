# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Generates the modules of ipam.proto, in place or below the folder given as argument."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_PROTO = "purelb_agent/proto/ipam.proto"
# Every file has a licence header; ansible-test checks generated files too.
_HEAD = """\
# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
# pylint: disable=unused-import
"""
_LINE = 60


def _wrap(match: re.Match[str]) -> str:
    """Returns the bytes literal on several lines."""
    data = ast.literal_eval(match[1])
    lines = [repr(data[i : i + _LINE]) for i in range(0, len(data), _LINE)]
    return "AddSerializedFile(\n" + "\n".join(lines) + "\n)"


def main() -> None:
    """Generate the files, add the header and format them."""
    out = Path(sys.argv[1] if len(sys.argv) > 1 else _HERE).resolve()
    kinds = ("python", "pyi", "grpc_python")
    protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{_HERE}"]
    subprocess.run([*protoc, *(f"--{kind}_out={out}" for kind in kinds), _PROTO], check=True)
    made = sorted((out / _PROTO).parent.glob("ipam_pb2*"))
    for file in made:
        text = re.sub(r"AddSerializedFile\((b'.*')\)", _wrap, file.read_text())
        file.write_text(_HEAD + text)
    ruff = [sys.executable, "-m", "ruff", "format", "--quiet", "--isolated", "--line-length=100"]
    subprocess.run([*ruff, *made], check=True)


if __name__ == "__main__":
    main()
