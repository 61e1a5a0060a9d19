"""Lessons and worksheets: the lectures' examples worked on real parts and models."""
