# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The rules of the CustomResourceDefinitions, and test cases for each of them."""
