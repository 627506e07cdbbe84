# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What the modules, the programs and the tests share: the pure core, and the I/O of the modules."""
