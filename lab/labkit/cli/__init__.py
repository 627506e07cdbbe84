# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The commands of `lab`: from parsed arguments to an exit code."""
