"""Access rules on behalf of callers: added, removed, listed, and asked what they say."""
