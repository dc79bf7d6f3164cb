"""Tensors -> exact bucket counts, on the device that they are on. torch and numpy are imported when one comes."""
