# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The parts of the benchmarks: what is measured, and how it is shown."""
