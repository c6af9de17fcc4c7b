"""Shapes that no table and no fit has seen: measured, as a report and as a picture."""
