"""The leader's side of a fetch stream: what a follower was told, what is new, and what is at hand for it."""
