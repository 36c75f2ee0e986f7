"""What a committer does beside the requests: archive, spill, merge, sweep."""
