# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Check how many branches of the agent its unit tests reach: `make coverage`.

Reads the report of `coverage json`, prints each file below `EACH`, and exits with 1 if the files
together are below `TOTAL`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# Percent of the branches.
EACH = 90.0
TOTAL = 90.0


def percent(reached: int, branches: int) -> float:
    """Percent of branches that tests reached; 100 for code without branches."""
    return 100.0 if branches == 0 else 100.0 * reached / branches


def check(report: dict[str, Any]) -> tuple[list[str], bool]:
    """Returns a line for each file below `EACH` and one for all, and whether all reach `TOTAL`."""
    lines, all_reached, all_branches = [], 0, 0
    for name, found in sorted(report["files"].items()):
        reached = found["summary"]["covered_branches"]
        branches = found["summary"]["num_branches"]
        all_reached += reached
        all_branches += branches
        if percent(reached, branches) < EACH:
            lines.append(f"{percent(reached, branches):6.1f} %  {reached:4}/{branches:<4} {name}")
    total = percent(all_reached, all_branches)
    lines.append(f"{total:6.1f} %  {all_reached:4}/{all_branches:<4} of all branches")
    return lines, total >= TOTAL


def main() -> int:
    """Print the result for the report that the command line names."""
    lines, is_enough = check(json.loads(Path(sys.argv[1]).read_text()))
    print("\n".join(lines))
    if not is_enough:
        print(f"Fewer than {TOTAL:g} % of the agent's branches are reached.", file=sys.stderr)
    return 0 if is_enough else 1


if __name__ == "__main__":
    sys.exit(main())
