"""The frame of all pages: one file that loads nothing, for wide and narrow screens, light and dark.

A policy in the page forbids the browser to load anything, or to run another script.
"""

import base64
import hashlib
import html

_STYLE = """
:root { color-scheme: light dark }
body { margin: auto; padding: 24px; font: 16px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; overflow-wrap: anywhere }
h1 { font-size: clamp(1.25rem, 5vw, 2rem); line-height: 1.25 }
"""
DIRECTIONS = {code: f"[U+{code:04X}]" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
"""Characters that change the text direction, as pages show them, so that a text cannot reorder the words around it."""


def page(title: str, body: str, style: str) -> str:
    """A page. Args: title: a text; body: HTML below the title; style: CSS of the page, after the common CSS."""
    return document(title, f"<h1>{html.escape(title)}</h1>\n{body}", _STYLE + style)


def document(title: str, body: str, style: str, script: str = "") -> str:
    """An HTML document.

    Args:
      title: a text, for the browser's tab.
      body: HTML.
      style: CSS.
      script: JavaScript that runs after the body is read; "" = none.
    """
    title, body = html.escape(title).translate(DIRECTIONS), body.translate(DIRECTIONS)
    if script:
        body += f"\n<script>{script}</script>"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">\n'
        f"<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _policy(script: str) -> str:
    """A Content-Security-Policy that allows only this script, and loads nothing."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    scripts = f"'sha256-{digest}'" if script else "'none'"
    parts = ("default-src 'none'", "style-src 'unsafe-inline'", "img-src data:", f"script-src {scripts}")
    return "; ".join([*parts, "base-uri 'none'", "form-action 'none'"])
