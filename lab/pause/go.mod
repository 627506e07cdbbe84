// SPDX-FileCopyrightText: The PureLB for Ansible authors
// SPDX-License-Identifier: Apache-2.0

module purelb.io/lab/pause

go 1.26.0
