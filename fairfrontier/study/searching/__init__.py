"""Searching the settings of a study."""
