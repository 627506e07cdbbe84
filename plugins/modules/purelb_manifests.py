#!/usr/bin/python
# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
---
module: purelb_manifests
short_description: Write several manifests to a folder in one task
version_added: 0.1.0
author:
  - PureLB for Ansible authors (!UNKNOWN)
description:
  - Writes the files in O(files) to a folder and removes those in O(absent). Other files stay unchanged.
  - For example for a folder that a GitOps controller reads. One task for each file would take half a second each.
  - Each file is written atomically.
options:
  path:
    description:
      - The folder. It is created with mode 0755 if it does not exist.
    type: path
    required: true
  files:
    description:
      - Content of each file, by file name. Content other than a string is written as JSON.
      - Files are created with mode 0644, so do not use this for secrets.
    type: dict
    required: true
  absent:
    description:
      - Names of files to remove.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
    description: Returns the expected changes.
  diff_mode:
    support: full
    description: For each changed file.
seealso:
  - module: purelb.purelb.purelb_objects
"""

EXAMPLES = r"""
- name: Write a ServiceGroup for a GitOps controller, and remove another one
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
  description: Result for each file.
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
      description: One of C(created), C(changed), C(unchanged), C(deleted) and C(absent); in check mode the expected
        one.
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
        descriptor, temporary = tempfile.mkstemp(dir=module.tmpdir)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        module.atomic_move(temporary, str(path))
        module.set_mode_if_different(str(path), FILE_MODE, changed=True)

    work = folder.manage
    finish.finish(module, lambda: work(module.params, check_mode=module.check_mode, move=move))


if __name__ == "__main__":
    main()
