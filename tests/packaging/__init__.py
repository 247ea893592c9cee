"""The package as users install it: its extras, its wheel."""
