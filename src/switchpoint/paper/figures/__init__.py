"""Elements that the figures of several studies share."""
