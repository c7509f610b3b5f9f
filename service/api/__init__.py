"""Thin Litestar routes."""
