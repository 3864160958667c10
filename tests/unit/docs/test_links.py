"""Links between pages lead somewhere: the file is there, and so is the heading."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LINK = re.compile(r"(?<!\!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def pages(root: Path) -> list[Path]:
    """Every page of the repository; folders that tools make are none of it."""
    found = [root / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
    for folder in ("docs", "deploy", "bench", "services", "libs", "analysis", "tests"):
        found += sorted((root / folder).rglob("*.md"))
    return [page for page in found if page.is_file() and "node_modules" not in page.parts]


def anchors(text: str) -> set[str]:
    """What headings are called in links, as GitHub makes it; the second of a name ends in -1."""
    names: dict[str, int] = {}
    found = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", FENCE.sub("", text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found.add(slug if slug not in names else f"{slug}-{names[slug]}")
        names[slug] = names.get(slug, 0) + 1
    return found


def broken(page: Path) -> list[str]:
    """Links of a page that lead nowhere; those to other sites are not followed."""
    wrong = []
    text = page.read_text(encoding="utf-8")
    for link in LINK.findall(re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            wrong.append(f"{link}: no such file")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8")):
            wrong.append(f"{link}: no such heading")
    return wrong


@pytest.mark.parametrize("page", pages(ROOT), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_a_link_to_nothing_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    (tmp_path / "other.md").write_text("# Its `own` heading: here\n\n```\n# no heading\n```\n")
    page.write_text(
        "# One\n[a](other.md#its-own-heading-here) [b](#one) [c](https://example.org/x)\n"
        "[d](gone.md) [e](other.md#no-heading) [f](#two) `[g](gone.md)`\n"
    )
    assert broken(page) == ["gone.md: no such file", "other.md#no-heading: no such heading", "#two: no such heading"]
