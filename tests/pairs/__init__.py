"""Faults that are planted two by two: healthy patients on disk, tables of faults, and what becomes of each pair."""
