"""What every service needs: errors and their statuses, clock, servers and channels, supervisor, settings, logs."""
