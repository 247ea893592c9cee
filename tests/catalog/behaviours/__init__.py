"""What PyIceberg's catalogs do, and the plug-in does the same."""
