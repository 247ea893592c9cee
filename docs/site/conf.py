"""Sphinx settings of the site; `build.py` gives it its pages."""

project = "Endive"
author = "the authors of Endive"
html_title = "Endive"
html_theme = "furo"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
myst_heading_anchors = 4
default_role = "code"  # docstrings write `name`
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_default_options = {"members": True, "imported-members": True, "show-inheritance": True}
suppress_warnings = [
    "misc.highlighting_failure",  # output of programs in fences
    "docutils",  # docstrings are plain text with lists, not strict reStructuredText
    "ref.python",  # a class is documented where it is offered and where it is defined
]
