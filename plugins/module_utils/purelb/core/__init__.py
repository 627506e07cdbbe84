# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The decisions of PureLB: pure functions on frozen records, used by agent, modules and tests.

It never imports other packages of the project, does I/O or reads a clock; times are arguments. The
modules directly in this package are shared by all subjects: records (model), names, settings,
errors, and the parsers of addresses and times.
"""
