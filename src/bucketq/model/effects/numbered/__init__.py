"""Numbered batches of consumers: claimed, prepared, settled and taken apart."""
