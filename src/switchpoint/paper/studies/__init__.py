"""The studies of the paper and beyond it, one file each."""
