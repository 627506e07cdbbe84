#!/usr/bin/python
# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
---
module: purelb_manifests
short_description: Write the manifests of a folder, all in one step
version_added: 0.1.0
author:
  - PureLB for Ansible authors (@purelb)
description:
  - Makes some files of a folder what they should be, and removes others. Files that are not named stay as they are.
  - For the folder that a GitOps tool reads, with a file for each kind of object. A task for each file takes half a
    second each.
  - Each file is written whole or not at all.
options:
  path:
    description:
      - The folder. It is made if it is missing, with mode 0755.
    type: path
    required: true
  files:
    description:
      - The text of each file by its name. What is no text is written as JSON.
      - Files are made with mode 0644, which is not for secrets.
    type: dict
    required: true
  absent:
    description:
      - Names of files that are removed.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
    description: Says what it would do.
  diff_mode:
    support: full
    description: Of each file that changes.
seealso:
  - module: purelb.purelb.purelb_objects
"""

EXAMPLES = r"""
- name: Write a ServiceGroup for a GitOps tool, and take away another one
  purelb.purelb.purelb_manifests:
    path: clusters/one/purelb
    files:
      default.yaml: |
        apiVersion: purelb.io/v2
        kind: ServiceGroup
        metadata: {name: default, namespace: purelb-system}
        spec: {local: {v4pool: {subnet: 192.168.1.0/24, pool: 192.168.1.240-192.168.1.250}}}
    absent: [old.yaml]
"""

RETURN = r"""
results:
  description: What became of each file.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the file.
      type: str
      returned: success
      sample: default.yaml
    action:
      description: One of C(created), C(changed), C(unchanged), C(deleted) and C(absent); in check mode what it
        would be.
      type: str
      returned: success
      sample: created
"""

import os
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.apply import folder
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.module import finish

FILE_MODE = 0o644


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "files": {"type": "dict", "required": True},
            "absent": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )

    def move(text: str, path: Path) -> None:
        descriptor, beside = tempfile.mkstemp(dir=module.tmpdir)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        module.atomic_move(beside, str(path))
        module.set_mode_if_different(str(path), FILE_MODE, changed=True)

    work = folder.manage
    finish.finish(module, lambda: work(module.params, check_mode=module.check_mode, move=move))


if __name__ == "__main__":
    main()
