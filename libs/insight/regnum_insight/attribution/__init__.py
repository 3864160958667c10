"""Where the time of a change of leadership went: the only text of it, pure, over the spans of one trace."""
