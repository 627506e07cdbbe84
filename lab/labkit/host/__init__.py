# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The machine that the lab runs on: folders, processes, control groups, progress."""
