"""The site: `make site` builds these pages, and fails on a link that leads nowhere."""

import re

project = "Regnum"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "Regnum"
html_copy_source = False
exclude_patterns = ["_build"]
myst_heading_anchors = 6

OUTSIDE = re.compile(r"\[([^\]]*)\]\((?:\.\./)+((?:[\w-]+/)*(?:[A-Z]+\.md|[\w-]+/?))(?:#[^)]*)?\)")
"""Links to pages and folders of the repository that are no part of the site."""


def setup(app):
    """Name by its path what the site does not have; other files outside come along as downloads."""

    def name_by_path(_app, _page, source):
        source[0] = OUTSIDE.sub(r"\1 (`\2`)", source[0])

    app.connect("source-read", name_by_path)
