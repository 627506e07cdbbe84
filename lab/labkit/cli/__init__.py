# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The commands of `lab`: they map parsed arguments to calls and an exit code."""
