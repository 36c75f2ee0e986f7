"""Jobs over an archive: compaction, report, replay."""
