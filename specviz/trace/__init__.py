"""Trace v1: writing, reading and telling a run that was recorded, one JSON event a line."""
