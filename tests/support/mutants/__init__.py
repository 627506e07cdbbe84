# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the tests: makes small bugs, one at a time, and shows which tests find each.

`tables` has the bugs. Each is made in a copy of the code, and tests of four stages run on it, from
fast to slow, until one fails. What nothing finds shows a rule that no test has. Nothing here
changes the checkout. `python -m tests.support.mutants` is what `make mutants` calls.
"""
