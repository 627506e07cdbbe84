# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A real NetBox, and a fake that serves the part of its REST API that an allocator uses."""
