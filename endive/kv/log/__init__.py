"""The write-ahead log: claiming an epoch, fencing, appending, replaying."""
