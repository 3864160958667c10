"""The site: `make site` builds these pages, and fails on a link that leads nowhere."""

project = "Regnum"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "Regnum"
html_copy_source = False
exclude_patterns = ["_build"]
myst_heading_anchors = 6
