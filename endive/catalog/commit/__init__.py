"""Commits: from requirements and updates to rows, metadata files and manifests."""
