"""Configurations of training frameworks: read, checked and written, each from one table of fields."""
