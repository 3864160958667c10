"""The pages: from what the cluster says to HTML."""
