"""Files that somebody else may have written: what is read of them, and what is left alone."""
