"""Questions about one partition's stream: its ends, ranges, searches, trimming, and what lies beside it."""
