# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Runs pytest so that one chance failure does not make a run red, and no lost test makes it green.

`recorder` is a plugin of pytest that writes down what was collected and how each test ended.
`verdict` is pure: from these records it finds what needs a second try, and what all of it means.
`runner` starts pytest, and gives each different failure a second try, on a fresh lab if the tests
use one. `python -m tests.support.gate run NAME PATH...` is what `make` calls.
"""
