# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Loads the fence into the kernel, keeps it on the interfaces, and opens it for as long as allowed.

With it a node's addresses fall silent at the end of its right, to the millisecond, also if the
agent is frozen or dead.
"""
