"""Draws SVG pictures: boxes, text, lines and arrows, with colours that can be read on light and dark pages."""

from html import escape

FONT = "-apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
PAPER = "#ffffff"
INK = "#1f2933"
FAINT_INK = "#52606d"
LINE = "#9aa5b1"
BLUE = "#dbeafe"
GREEN = "#dcfce7"
AMBER = "#fef3c7"
GREY = "#f1f5f9"


class Picture:
    """A picture that grows by parts."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img" aria-label="{escape(title)}" font-family="{FONT}">',
            f"<title>{escape(title)}</title>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" fill="{FAINT_INK}"/></marker></defs>',
            f'<rect width="{width}" height="{height}" rx="12" fill="{PAPER}"/>',
        ]

    def box(self, left: float, top: float, width: float, height: float, colour: str) -> None:
        self._parts.append(
            f'<rect x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" rx="8" fill="{colour}" '
            f'stroke="{LINE}"/>'
        )

    def bar(self, left: float, top: float, width: float, height: float, colour: str) -> None:
        self._parts.append(
            f'<rect x="{left:.1f}" y="{top:g}" width="{width:.1f}" height="{height:g}" rx="2" fill="{colour}"/>'
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: int = 13,
        anchor: str = "middle",
        bold: bool = False,
        ink: str = INK,
    ) -> None:
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{ink}"{weight}>'
            f"{escape(text)}</text>"
        )

    def lines(self, x: float, y: float, *lines: str) -> None:
        """Write a bold line and fainter ones below it."""
        self.text(x, y, lines[0], bold=True)
        for number, line in enumerate(lines[1:], start=1):
            self.text(x, y + 17 * number, line, size=12, ink=FAINT_INK)

    def line(self, x1: float, y1: float, x2: float, y2: float, *, dashes: str = "") -> None:
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self._parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:g}" x2="{x2:.1f}" y2="{y2:g}" stroke="{LINE}" stroke-width="1.2"{dashed}/>'
        )

    def arrow(self, x1: float, y1: float, x2: float, y2: float, *, both_ways: bool = False) -> None:
        start = ' marker-start="url(#tip)"' if both_ways else ""
        self._parts.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{FAINT_INK}" stroke-width="1.4" '
            f'marker-end="url(#tip)"{start}/>'
        )

    def render(self) -> str:
        return "\n".join([*self._parts, "</svg>", ""])
