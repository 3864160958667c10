"""What a consumer asks of leaders, ahead of its reader."""
