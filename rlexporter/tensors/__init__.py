"""Counts tensors into exact buckets, on the device that holds them. torch and numpy are imported on first use."""
