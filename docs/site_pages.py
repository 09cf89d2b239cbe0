"""Pages of the site that are made when it is built, and what Markdown for GitHub needs to be read by MkDocs.

MkDocs calls the functions `on_...` by their names; mkdocs.yml has this file as its hook.
"""

import html
import json
import os
import posixpath
import re
from pathlib import Path, PurePosixPath
from typing import Any

import latex2mathml.converter
from mkdocs.structure.files import File, Files

from docs import results_table

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
"""Files at the root of the checkout that are pages of the site."""
FILES = {"LICENSE": "LICENSE.txt", "CITATION.cff": "CITATION.cff"}
"""Files at the root of the checkout that pages link to."""


def modules() -> list[str]:
    """The public modules and packages of jaxnlp, by name: a new one needs no entry."""
    paths = [path.relative_to(ROOT).with_suffix("") for path in (ROOT / "jaxnlp").rglob("*.py")]
    names = {".".join(path.parts).removesuffix(".__init__") for path in paths}
    return sorted(name for name in names if not any(part.startswith("_") for part in name.split(".")))


def reference_page(module: str) -> str:
    """The page of a module, which mkdocstrings fills with its docstrings."""
    return f"# {module}\n\n::: {module}\n"


def reference_nav(package: str = "jaxnlp") -> list[Any]:
    """The navigation of a package: its own page, then its modules, and packages as sections."""
    depth = package.count(".") + 1
    names = modules()
    entries: list[Any] = [f"reference/{package}.md"]
    for name in names:
        if name.startswith(f"{package}.") and name.count(".") == depth:
            title = name.rpartition(".")[2]
            is_package = any(other.startswith(f"{name}.") for other in names)
            entries.append({title: reference_nav(name) if is_package else f"reference/{name}.md"})
    return entries


def notebooks() -> list[Path]:
    """The notebooks, in the order of their names."""
    return sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def notebook_page(path: Path) -> str:
    """A notebook as Markdown, with a link to the file itself."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    title, *parts = [
        "".join(cell["source"]) if cell["cell_type"] == "markdown" else f"```python\n{''.join(cell['source'])}\n```"
        for cell in cells
    ]
    link = f'<a href="{path.name}" download>{path.name}</a>'  # Markdown's link would lead to this page
    note = f"This is the notebook {link}, without its outputs: run it to see them."
    return "\n\n".join([title, note, *parts]) + "\n"


def on_config(config: Any) -> Any:
    """Puts the notebooks and the reference into the navigation."""
    found = {
        "notebooks": [f"notebooks/{path.stem}.md" for path in notebooks()],
        "reference": reference_nav(),
    }
    config.nav = [
        {title: found.get(entry, entry) if isinstance(entry, str) else entry for title, entry in section.items()}
        for section in config.nav
    ]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are made."""
    made = {f"reference/{name}.md": reference_page(name) for name in modules()}
    made |= {f"notebooks/{path.stem}.md": notebook_page(path) for path in notebooks()}
    made |= {site: (ROOT / name).read_text(encoding="utf-8") for name, site in (PAGES | FILES).items()}
    made["results.md"] = results_table.page(ROOT / "docs" / "results")
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    return files


def place_on_site(path: str) -> str | None:
    """Where the site has a file of the checkout, such as docs/bert.md or jaxnlp/ops/attention.py; None = nowhere.

    A module is at the page of its docstrings, and a notebook at the page that is made of it.
    """
    if path == "docs/results":
        return "results.md"
    if path.startswith("docs/notebooks/"):
        return path.removeprefix("docs/").replace(".ipynb", ".md")
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith("jaxnlp/") and path.endswith(".py"):
        name = ".".join(PurePosixPath(path).with_suffix("").parts).removesuffix(".__init__")
        return f"reference/{name}.md"
    return (PAGES | FILES).get(path)


def relink(markdown: str, page: str) -> str:
    """The Markdown of a page with its links to files of the checkout as links to pages of the site."""
    origin = {site: name for name, site in PAGES.items()}.get(page, f"docs/{page}")

    def replaced(match: re.Match[str]) -> str:
        target, _, anchor = match[1].partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
        place = place_on_site(path)
        if not target or ":" in target or place is None or not (ROOT / path).exists():
            return match[0]
        found = os.path.relpath(place, posixpath.dirname(page) or ".")
        return f"]({found}{'#' * bool(anchor)}{anchor})"

    return re.sub(r"\]\(([^()\s]+)\)", replaced, markdown)


def titled_fences(markdown: str) -> str:
    """Code that is quoted from a file, "```python jaxnlp/ops/x.py", gets the file's name as its title."""
    return re.sub(r"^```(\w+) (\S+)$", r'```\1 title="\2"', markdown, flags=re.M)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """What GitHub shows, for MkDocs."""
    return titled_fences(relink(markdown, page.file.src_uri))


def mathml(content: str) -> str:
    r"""HTML with MathML in place of LaTeX between \( and \) or \[ and \], so that no script is needed to show it."""

    def drawn(match: re.Match[str]) -> str:
        latex, display = html.unescape(match[3]), "inline" if match[2] == "(" else "block"
        return match[1] + latex2mathml.converter.convert(latex.strip(), display=display)

    return re.sub(r'(class="arithmatex">)\s*\\([(\[])(.*?)\\[)\]]\s*(?=</)', drawn, content, flags=re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """Draws formulas."""
    return mathml(content)
