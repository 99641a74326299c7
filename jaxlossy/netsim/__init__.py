"""A packet-level network simulator: what a network loses, and how long its flows take."""
