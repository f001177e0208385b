"""What the figures of several studies share."""
