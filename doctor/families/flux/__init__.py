"""Flux and Flux Kontext."""
