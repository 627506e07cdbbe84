# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A picture of requests that were answered over time, on a light or a dark page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil, floor
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 720, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 50, 20, 40, 50
_HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" \
aria-label="{title}" font-family="sans-serif" font-size="13">
<!--
SPDX-FileCopyrightText: The PureLB for Ansible authors
SPDX-License-Identifier: Apache-2.0
-->
<style>
text {{ fill: {text}; }}
.grid {{ stroke: {grid}; }}
.line {{ fill: none; stroke-width: 2.5; stroke-linejoin: round; }}
.c0 {{ stroke: {first}; }}
.c1 {{ stroke: {second}; stroke-dasharray: 7 4; }}
</style>
"""


@dataclass(frozen=True)
class Shade:
    """The colours of a picture; those of lines have a contrast of 4:1 or more with the page."""

    text: str
    grid: str
    first: str
    second: str


LIGHT = Shade("#24292f", "#d0d7de", "#0b62c4", "#b4540a")
DARK = Shade("#e6edf3", "#444c56", "#6cb0ff", "#f0a04b")


@dataclass(frozen=True)
class Line:
    """A name, and its points: seconds, and a percentage of requests."""

    name: str
    points: Sequence[tuple[float, float]]


def draw(lines: Sequence[Line], *, title: str, shade: Shade) -> str:
    """Return the picture of two lines as SVG."""
    seconds = [second for line in lines for second, _percent in line.points]
    first, last = floor(min(seconds)), ceil(max(seconds))
    across, down = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def at(second: float, percent: float) -> tuple[float, float]:
        x = _LEFT + across * (second - first) / (last - first)
        return round(x, 1), round(_TOP + down * (1 - percent / 100), 1)

    words = escape(title)
    parts = [_HEAD.format(width=_WIDTH, height=_HEIGHT, title=words, **asdict(shade))]
    for percent in (0, 25, 50, 75, 100):
        x, y = at(first, percent)
        parts.append(_rule(x, y, *at(last, percent)))
        parts.append(_text(x - 8, y + 4, f"{percent}%", "end"))
    for second in range(first + first % 2, last + 1, 2):
        x, y = at(second, 0)
        parts.append(_text(x, y + 18, f"{second} s", "middle"))
    parts.append(_rule(*at(0, 0), *at(0, 100)))
    parts.append(_text(_LEFT + across / 2, _HEIGHT - 10, title, "middle"))
    for number, line in enumerate(lines):
        points = " ".join(f"{x},{y}" for x, y in (at(*point) for point in line.points))
        parts.append(f'<polyline class="line c{number}" points="{points}"/>\n')
        x, y = _LEFT + 150 * number, _TOP - 18
        parts.append(f'<polyline class="line c{number}" points="{x},{y} {x + 30},{y}"/>\n')
        parts.append(_text(x + 38, y + 4, line.name, "start"))
    return "".join([*parts, "</svg>\n"])


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="grid" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>\n'


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(words)}</text>\n'
