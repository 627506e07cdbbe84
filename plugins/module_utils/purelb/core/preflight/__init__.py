# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What an installation would meet in a cluster, and whether that stops it.

It reads and writes nothing: the caller looks, and acts.
"""
